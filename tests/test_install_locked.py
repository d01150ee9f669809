"""Where uv looks for packages: where pip is configured to look."""

from install_locked import LOCK, PIN, variables_for_uv

SETTINGS = """\
:env:.index-url='http://127.0.0.1:3141/two'
global.cert='/etc/bundle.pem'
global.extra-index-url='\\nfile:///shelf/one\\nfile:///shelf/two'
global.find-links='/wheels /more'
global.index-url='http://127.0.0.1:3141/one'
list.format='columns'
"""


def test_uv_finds_packages_as_pip_does_and_variables_of_its_own_count_more() -> None:
    variables = variables_for_uv(SETTINGS, {"SSL_CERT_FILE": "/own.pem", "HOME": "/root"})
    assert variables == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "http://127.0.0.1:3141/two",
        "UV_INDEX": "file:///shelf/one file:///shelf/two",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/own.pem",
        "HOME": "/root",
    }


def test_the_lock_has_uv_with_its_hashes() -> None:
    (pin,) = PIN.findall(LOCK.read_text(encoding="utf-8"))
    assert "--hash=sha256:" in pin
