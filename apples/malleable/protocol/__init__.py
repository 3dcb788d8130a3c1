"""The control protocol between an agent and a job's anchor: pure state machines over sealed lines.

1. `sealing`: what makes a line this session's, and good for once.
2. `messages`: the command, and what became of it.
3. `ledger`: the commands of one job; `responder`: the job's end, over sessions.
4. `requester`: the agent's end, one wish followed to its end.
5. `network`, `exchange`, `enemy`, `simulation`: all of it where everything goes wrong.
"""
