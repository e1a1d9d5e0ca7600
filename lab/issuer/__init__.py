"""An OpenID issuer for development: made-up people and clients, on loopback, and never anywhere else."""

from lab.issuer.issuer import Issuer
from lab.issuer.server import IssuerHandle

__all__ = ["Issuer", "IssuerHandle"]
