"""What it costs to check a credential that several hubs have passed on, the first time and after that.

A credential of five hops has nine signatures. Checking those is the library's part of the first check, and its floor;
how long nine take by themselves, with the fastest library there is for them, is measured beside it.
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256

from biscuit_auth import Biscuit, PublicKey

from harness import Figure, at_most, best_of, best_of_each, cpu_seconds, main, sized, timed
from remit.ports import OutgoingRequest
from remit.protocol.errors import Fault
from remit.protocol.remit import Remit
from remit_server.transports.credentials.chain import attenuate, mint, read_chain
from remit_server.transports.credentials.keys import HubKey, Pair, is_signed
from remit_server.transports.credentials.proof import CredentialChain, Proofs, Statement, Verified, prove
from remit_server.transports.credentials.verify import Chains, verify

NOW_MS = 1_763_000_000_000
ROUNDS, TIMES = sized((15, 40), (1, 2))
HOPS = 5
# One of the hub that starts it; each that passes it on adds its own, and one of a key that the block before names.
SIGNATURES = 2 * HOPS - 1
SENDING = OutgoingRequest("POST", "/v1/delegations", bytes(1_000))
TOOLS = frozenset({"ledger", "calendar", "mail"})

# What reading the blocks and comparing them may cost beside the signatures.
TIMES_LIBRARY = at_most(1.25)
# A request that comes again, or is followed: its proof is new, its credential is not. One more of the same run: of its
# credential the last block is new.
CHECK_MS = at_most(1)
# Reading the last block without the library is worth its code only while the library takes more than twice as long.
WORTH_IT = at_most(0.5)


def passed_on(pairs: list[Pair]) -> str:
    """Return the credential that the last of *pairs* receives."""
    remit = Remit(user="u-1", depth=0, max_depth=9, time_ms=60_000, tokens=8_000, tools=TOOLS)
    token = mint(pairs[0], remit, to=pairs[1].public, request_id="r", now_ms=NOW_MS)
    for number in range(1, len(pairs) - 1):
        remit = remit.narrow(caller=f"agent{number}@hub{number}", time_ms=60_000, tokens=8_000)
        held = chain_of(token, pairs)
        token = attenuate(held, pairs[number], remit, to=pairs[number + 1].public, request_id="r", now_ms=NOW_MS)
    assert isinstance(token, str), token
    return token


def passed_on_often(pairs: list[Pair]) -> list[str]:
    """Return what the last receives of a hub that passes on many requests under one credential."""
    held = chain_of(passed_on(pairs[:-1]), pairs)
    remit = Remit(
        user="u-1", depth=HOPS, max_depth=9, time_ms=60_000, tokens=8_000, tools=TOOLS, chain=(*held.agents, "a@h")
    )
    made = [
        attenuate(held, pairs[-2], remit, to=pairs[-1].public, request_id="r", now_ms=NOW_MS) for _ in range(TIMES + 1)
    ]
    return [token for token in made if isinstance(token, str)]


def best_of_more(pairs: list[Pair]) -> float:
    """Return the least time for all requests of a run but its first, which has to be checked whole."""
    first, *rest = passed_on_often(pairs)

    def check_rest() -> None:
        for token in rest:
            check(token, pairs, chains)

    seconds: list[float] = []
    for _ in range(ROUNDS):
        chains = Chains()
        check(first, pairs, chains)
        seconds.append(timed(check_rest, cpu_seconds))
    return min(seconds)


def chain_of(token: str | Fault, pairs: list[Pair]) -> CredentialChain:
    assert isinstance(token, str), token
    chain = read_chain(token, {pairs[0].public})
    assert isinstance(chain, CredentialChain), chain
    return chain


def check(token: str, pairs: list[Pair], chains: Chains) -> None:
    verified = verify(
        token,
        peer_key=pairs[-2].public,
        me={pairs[-1].public},
        roots={pairs[0].public},
        now_ms=NOW_MS,
        request_id="r",
        chains=chains,
    )
    assert isinstance(verified, Verified), verified


def repeatedly(run: Callable[[], object]) -> Callable[[], None]:
    def runs() -> None:
        for _ in range(TIMES):
            run()

    return runs


def take(headers: list[str], token: str, pairs: list[Pair], chains: Chains) -> None:
    """Take as many proofs as there are, each once, and check the credential that came with each."""
    proofs = Proofs()
    for header in headers:
        stated = proofs.take(
            header,
            known={pairs[-2].public},
            me={pairs[-1].public},
            now_ms=NOW_MS,
            method=SENDING.method,
            path=SENDING.path,
            # What a server does with the body that came.
            body=sha256(SENDING.body).digest(),
            credential=token,
        )
        assert isinstance(stated, Statement), stated
        check(token, pairs, chains)


def measure() -> list[Figure]:
    pairs = [HubKey.create(NOW_MS).signing(NOW_MS) for _ in range(HOPS + 1)]
    token, direct = passed_on(pairs), passed_on(pairs[:2])
    root = PublicKey(pairs[0].public)
    first = best_of_each(
        ROUNDS,
        {
            "ours": repeatedly(lambda: check(token, pairs, Chains())),
            "library": repeatedly(lambda: Biscuit.from_base64(token, root)),
        },
    )
    chains = Chains()
    check(token, pairs, chains)
    headers = [
        prove(pairs[-2], SENDING, to=pairs[-1].public, request_id="r", now_ms=NOW_MS, credential=token)
        for _ in range(TIMES)
    ]
    again = best_of(ROUNDS, partial(take, headers, token, pairs, chains))
    more = best_of_more(pairs)
    message = bytes(400)
    signature = pairs[0].sign(message)
    bare = best_of(ROUNDS, repeatedly(lambda: is_signed(pairs[0].public, signature, message)))
    once = best_of(ROUNDS, repeatedly(lambda: check(direct, pairs[:2], Chains())))
    made = best_of(ROUNDS, repeatedly(lambda: passed_on(pairs[:2])))
    ms = 1_000 / TIMES
    return [
        Figure(
            name=f"credential: first check at {HOPS} hops",
            value=first["ours"] * ms,
            floor=first["library"] * ms,
            unit="ms",
            bound=TIMES_LIBRARY,
        ),
        Figure(name=f"credential: check after the first at {HOPS} hops", value=again * ms, unit="ms", bound=CHECK_MS),
        Figure(
            name=f"credential: one more of the same run at {HOPS} hops",
            value=more * ms,
            unit="ms",
            bound=CHECK_MS,
        ),
        Figure(
            name=f"credential: one more of the same run at {HOPS} hops, against all of it",
            value=more * ms,
            floor=first["ours"] * ms,
            unit="ms",
            bound=WORTH_IT,
        ),
        Figure(name=f"credential: {SIGNATURES} signatures alone", value=SIGNATURES * bare * ms, unit="ms"),
        Figure(name="credential: first check at 1 hop", value=once * ms, unit="ms", bound=CHECK_MS),
        Figure(name="credential: made for 1 hop", value=made * ms, unit="ms"),
        Figure(name=f"credential: size at {HOPS} hops", value=len(token), unit="characters"),
    ]


if __name__ == "__main__":
    main(measure)
