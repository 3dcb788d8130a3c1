"""stub."""

import json


def demo_page(document):
    return "<pre>" + json.dumps(document) + "</pre>"
