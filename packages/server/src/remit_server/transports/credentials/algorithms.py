"""The signature algorithms of identity providers, without importing the library that checks them."""

from typing import Literal

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
# The common ones. None of them takes a secret that could be confused with a public key, and `none` is excluded.
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256")
