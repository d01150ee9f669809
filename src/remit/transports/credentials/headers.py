"""The headers in which senders prove who they are."""

CREDENTIAL = "Remit-Credential"
PROOF = "Remit-Proof"
BEARER = "Authorization"
