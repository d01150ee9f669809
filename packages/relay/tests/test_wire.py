"""What a device and its gateway say to each other."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways import id_of
from remit_relay.wire import (
    FINAL,
    MAX_BODY,
    MAX_FRAME,
    MAX_ONE_TIME_AT_ONCE,
    NONCE_BYTES,
    Ack,
    AllowSenders,
    BundleReply,
    Bye,
    Challenge,
    Delivery,
    Denied,
    Done,
    Fetch,
    FromDevice,
    FromGateway,
    Hello,
    KeysLeft,
    Malformed,
    Publish,
    Put,
    Receipt,
    Refused,
    Stored,
    Welcome,
    encode_binary,
    encode_text,
    read_delivery,
    read_from_device,
    read_from_gateway,
    read_put,
    signed_text,
)

A, B = id_of("a"), id_of("b")
FROM_DEVICE: list[FromDevice] = [
    Hello(public=bytes(32), signature=bytes(64)),
    Ack(7),
    Publish(request=1, bundle=b"signed", one_time=(b"k1", b"k2")),
    Publish(request=2),
    Fetch(request=3, device=A),
    AllowSenders(request=4, senders=(A, B)),
    AllowSenders(request=5, senders=None),
]
FROM_GATEWAY: list[FromGateway] = [
    Challenge(gateway="relay.example", nonce=bytes(NONCE_BYTES)),
    Welcome(device=A, one_time_left=3),
    Stored((Receipt(A, 1), Receipt(B, 2, True))),
    Refused(to=A, number=4, code="full", reason="it waits", retry_after_ms=10),
    Done(request=1, one_time_left=2),
    BundleReply(request=3, device=A, bundle=b"signed", one_time=b"k1"),
    Denied(request=3, code="unreachable"),
    KeysLeft(one_time_left=1),
    Bye(code="replaced", reason="elsewhere"),
]


@pytest.mark.parametrize("frame", FROM_DEVICE, ids=lambda frame: type(frame).__name__)
def test_what_a_device_says_is_what_the_gateway_hears(frame: FromDevice) -> None:
    assert read_from_device(encode_text(frame)) == frame


@pytest.mark.parametrize("frame", FROM_GATEWAY, ids=lambda frame: type(frame).__name__)
def test_what_a_gateway_says_is_what_the_device_hears(frame: FromGateway) -> None:
    assert read_from_gateway(encode_text(frame)) == frame


@given(number=st.integers(1, 2**53), body=st.binary(min_size=1, max_size=300), anew=st.booleans())
def test_sealed_bytes_cross_as_they_are(number: int, body: bytes, anew: bool) -> None:
    assert read_put(encode_binary(Put(A, number, body, anew))) == Put(A, number, body, anew)
    assert read_delivery(encode_binary(Delivery(5, B, number, body))) == Delivery(5, B, number, body)


def test_the_largest_message_fits_into_a_frame() -> None:
    assert len(encode_binary(Put(A, 2**53, bytes(MAX_BODY), True))) <= MAX_FRAME
    assert len(encode_binary(Delivery(2**53, A, 2**53, bytes(MAX_BODY)))) <= MAX_FRAME
    keys = Publish(request=2**53, bundle=bytes(16 * 1024), one_time=(bytes(1_024),) * MAX_ONE_TIME_AT_ONCE)
    assert len(encode_text(keys)) <= MAX_FRAME


@pytest.mark.parametrize(
    ("put", "field"),
    [
        (Put("nobody", 1, b"x"), "$.to"),
        (Put(A, 0, b"x"), "$.number"),
        (Put(A, 1, b""), "$.body"),
        (Put(A, 1, bytes(MAX_BODY + 1)), "$.body"),
    ],
)
def test_a_put_that_is_wrong_is_refused_with_the_name_of_its_field(put: Put, field: str) -> None:
    with pytest.raises(Malformed, match=r"put: .*" + field.replace("$", r"\$")):
        read_put(encode_binary(put))


def test_a_delivery_that_is_wrong_is_refused_with_the_name_of_its_field() -> None:
    with pytest.raises(Malformed, match=r"delivery: .*\$\.sender"):
        read_delivery(encode_binary(Delivery(1, "nobody", 1, b"x")))


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_but_malformed(data: bytes) -> None:
    for read in (read_put, read_delivery, read_from_device, read_from_gateway):
        try:
            read(data)
        except Malformed:
            continue


def test_what_is_nested_without_end_where_nobody_looks_is_malformed() -> None:
    """A gateway or a device that sends it loses its connection, and nothing else ends by it."""
    deep = b"\x91" * 100_000 + b"\x00"
    put, delivery = encode_binary(Put(A, 1, b"x", anew=True)), encode_binary(Delivery(1, A, 1, b"x"))
    assert put[0] == delivery[0] == 0x95
    for read, frame in ((read_put, put), (read_delivery, delivery)):
        with pytest.raises(Malformed):
            read(b"\x96" + frame[1:] + deep)
    nested = b'"later":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for read, text in ((read_from_device, b'{"type":"ack","place":1,'), (read_from_gateway, b'{"type":"bye",')):
        with pytest.raises(Malformed):
            read(text + nested)


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"hello","public":"AA==","signature":"AA=="}',
        b'{"type":"fetch","request":1,"device":"../../etc"}',
        b'{"type":"fetch","request":0,"device":"' + A.encode() + b'"}',
        b'{"type":"nothing"}',
        b'{"type":"ack","place":-1}',
        b'{"type":"ack","place":"\\ud800"}',
    ],
)
def test_a_control_frame_that_is_wrong_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed, match="control frame: "):
        read_from_device(text)


def test_the_text_that_is_signed_differs_in_each_part() -> None:
    parts = {"gateway": "g", "nonce": bytes(32), "device": A}
    changed = [{}, {"gateway": "h"}, {"nonce": bytes(31) + b"1"}, {"device": B}]
    texts = {signed_text(**{**parts, **change}) for change in changed}  # pyright: ignore[reportArgumentType]
    assert len(texts) == 4
    # Lengths are part of it, so nothing can move from one part into the next.
    assert signed_text(gateway="ga", nonce=b"b", device=A) != signed_text(gateway="g", nonce=b"ab", device=A)


def test_only_what_would_end_the_same_way_again_is_final() -> None:
    assert set(FINAL) == {"replaced", "unauthenticated", "version", "malformed"}


def test_frames_from_a_later_version_may_have_more_fields() -> None:
    assert read_from_device(b'{"type":"ack","place":3,"more":true}') == Ack(3)
    assert msgspec.json.decode(encode_text(Ack(3))) == {"type": "ack", "place": 3}
