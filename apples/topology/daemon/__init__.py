"""The topology daemon of a host: the single point of decision about its CPUs.

Pure: `job`, `state` (records make it), `sharing` (who runs on which CPUs). Around them: `journal`, `node` (record,
then kernel, then answer), `recovery`, `node_manager` (asks jobs to shrink), `releasing` (kill loop, quarantine,
watch), `allocating` and `resizing` (the verbs), `desk` (who may ask what), `protocol`, `server`, `client`.
"""
