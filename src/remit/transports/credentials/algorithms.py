"""How identity providers may sign, for whoever needs to know without the library that checks it."""

from typing import Literal

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
# What most use. None of them takes a secret that could be confused with a public key, and `none` is none of them.
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256")
