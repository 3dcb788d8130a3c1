"""A certificate for tests of TLS."""

import shutil
import subprocess

import pytest


def certified(folder):
    """Return the files of a certificate of 127.0.0.1, signed by itself, and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"
