"""Numbers that states and banks give out: personal, tax and company numbers, bank codes and accounts.

A row is a number: its kind, the module of stdnum that checks it (or a check of our own), its shape, and the words that
name it. A number is found where a word names it; by its shape alone only where that, its check digits and its date
leave hardly a chance for another number.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from remit.detectors import context
from remit.detectors.linear import Linear
from remit.detectors.normal import spelled
from remit.policy.verdict import Finding

Check = Callable[[str], bool]

# ── checks that stdnum has not ────────────────────────────────────────────────────────────────────────────────────────


def _weighed(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def _clabe(number: str) -> bool:
    """Mexico's bank accounts: the last of 18 digits checks the others (Banco de México)."""
    total = sum(int(digit) * weight % 10 for digit, weight in zip(number[:17], (3, 7, 1) * 6, strict=False))
    return len(number) == 18 and (total + int(number[17])) % 10 == 0


def _nrb(number: str) -> bool:
    """Poland's bank accounts: an IBAN without its country."""
    return len(number) == 26 and int(f"{number[2:]}2521{number[:2]}") % 97 == 1


def _snils(number: str) -> bool:
    """Russia's social insurance: two digits check nine."""
    return _weighed(number, (9, 8, 7, 6, 5, 4, 3, 2, 1)) % 101 % 100 == int(number[9:])


def _nric(number: str) -> bool:
    """Singapore's residents and foreigners: a letter checks seven digits."""
    total = _weighed(number[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"T": 4, "G": 4, "M": 3}.get(number[0], 0)
    letters = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "M": "XWUTRQPNJLK"}.get(number[0], "XWUTRQPNMLK")
    return letters[total % 11] == number[8]


def _hkid(number: str) -> bool:
    """Hong Kong's identity cards: a digit or A checks one or two letters and six digits."""
    plain = number.replace("(", "").replace(")", "").rjust(9)
    values = [36 if char == " " else int(char, 36) for char in plain]
    return sum(value * weight for value, weight in zip(values, range(9, 0, -1), strict=True)) % 11 == 0


def _tw_id(number: str) -> bool:
    """Taiwan's identity cards: a letter for the county, nine digits, the last of which checks."""
    county = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0]) + 10
    return (county // 10 + county % 10 * 9 + _weighed(number[1:], (8, 7, 6, 5, 4, 3, 2, 1, 1))) % 10 == 0


def _pl_card(number: str) -> bool:
    """Poland's identity cards: the fourth of nine characters checks the others."""
    values = [int(char, 36) for char in number]
    return (_sum(values[:3], (7, 3, 1)) + _sum(values[4:], (7, 3, 1, 7, 3))) % 10 == values[3]


def _sum(values: list[int], weights: tuple[int, ...]) -> int:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def _any(number: str) -> bool:
    """No check digit: the shape and the word must do."""
    return bool(number)


# ── the numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────

_PERSON, _TAX, _CODE, _ACCOUNT = "NATIONAL_ID", "TAX_ID", "BANK_CODE", "BANK_ACCOUNT"


class NumberKind(NamedTuple):
    """A kind of number: who is named by it, what checks it, how it is written, which words name it."""

    kind: str
    check: str | Check
    shape: str
    words: str = ""
    sure: str = ""
    """The shape in which it is found without a word; empty if in none."""


def _digits(count: int, most: int | None = None) -> str:
    """Digits with single blanks, dots, dashes or slashes between them."""
    return rf"\d(?:[ ./-]?\d){{{count - 1},{(most or count) - 1}}}"


ROWS: tuple[NumberKind, ...] = (
    # Europe
    NumberKind(_PERSON, "pl.pesel", _digits(11), "pesel|peselu|peselem|peselowi", r"\d{11}"),
    NumberKind(_TAX, "pl.nip", r"(?:PL ?)?" + _digits(10), "nip|nipu|nipem|numer identyfikacji podatkowej"),
    NumberKind(_TAX, "pl.regon", _digits(9) + r"(?:[ -]?\d{5})?", "regon|regonu|regonem"),
    NumberKind(
        _PERSON, _pl_card, r"[A-Z]{3} ?\d{6}", "dowód|dowodu|dowodem|dowód osobisty|dowodu osobistego|identity card"
    ),
    NumberKind(_ACCOUNT, _nrb, _digits(26), "konto|konta|koncie|rachunek|rachunku|nrb", r"\d{2}(?: ?\d{4}){6}"),
    NumberKind(
        _PERSON,
        "de.idnr",
        _digits(11),
        "steuer-id|steuerid|steueridentifikationsnummer|idnr|steuerliche identifikationsnummer|"
        "steuer-identifikationsnummer|identifikationsnummer",
    ),
    NumberKind(
        _TAX, "de.stnr", r"\d{2,3}[ /]?\d{3,4}[ /]?\d{4,5}|\d{10,13}", "steuernummer|steuer-nr|steuernr|st-nr|stnr"
    ),
    NumberKind(
        _PERSON,
        _any,
        r"\d{2} ?\d{6} ?[A-Z] ?\d{3}",
        "rentenversicherungsnummer|sozialversicherungsnummer|rvnr|svnr|sv-nummer|versicherungsnummer",
    ),
    NumberKind(_PERSON, "at.vnr", _digits(10), "svnr|sozialversicherungsnummer|sv-nummer|versicherungsnummer"),
    NumberKind(_TAX, "at.tin", r"\d{2}[ -]?\d{3}[ /]?\d{4}", "steuernummer|abgabenkontonummer"),
    NumberKind(
        _PERSON,
        "ch.ssn",
        r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}",
        "ahv|avs|ahv-nummer|sozialversicherungsnummer",
        r"756\.\d{4}\.\d{4}\.\d{2}|756\d{10}",
    ),
    NumberKind(_TAX, "ch.uid", r"CHE[- ]?\d{3}[. ]?\d{3}[. ]?\d{3}", "uid", r"CHE-\d{3}\.\d{3}\.\d{3}"),
    NumberKind(
        _PERSON,
        "fr.nir",
        r"[12] ?\d{2} ?\d{2} ?\d[0-9AB] ?\d{3} ?\d{3} ?\d{2}",
        "nir|numéro de sécurité sociale|sécurité sociale|insee|numéro de sécu",
        r"[12] ?\d{2} ?(?:0[1-9]|1[0-2]) ?\d[0-9AB] ?\d{3} ?\d{3} ?\d{2}",
    ),
    NumberKind(_TAX, "fr.nif", _digits(13), "numéro fiscal|nif|spi|référence fiscale"),
    NumberKind(_TAX, "fr.siret", _digits(14), "siret"),
    NumberKind(_TAX, "fr.siren", _digits(9), "siren"),
    NumberKind(
        _PERSON,
        "es.dni",
        r"\d{8}[ -]?[A-Za-z]|\d{2}\.\d{3}\.\d{3}[ -]?[A-Za-z]",
        "dni|nif|documento nacional|documento de identidad",
        r"\d{8}-?[A-HJ-NP-TV-Z]",
    ),
    NumberKind(
        _PERSON,
        "es.nie",
        r"[XYZxyz][ -]?\d{7}[ -]?[A-Za-z]",
        "nie|extranjero|extranjería",
        r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]",
    ),
    NumberKind(_TAX, "es.cif", r"[A-HJ-NP-SUVWa-hj-np-suvw][ -]?\d{7}[ -]?[0-9A-Ja-j]", "cif|nif", r"[ABGHQS]-?\d{8}"),
    NumberKind(_PERSON, _any, r"\d{2}[ /-]?\d{8}[ /-]?\d{2}", "seguridad social|nuss"),
    NumberKind(_ACCOUNT, "es.ccc", r"\d{4}[ -]?\d{4}[ -]?\d{2}[ -]?\d{10}", "ccc|cuenta|cuenta corriente"),
    NumberKind(
        _PERSON,
        "it.codicefiscale",
        r"[A-Za-z]{6} ?[0-9L-NP-Vl-np-v]{2} ?[A-Ea-eHhLMPRSTlmprst] ?[0-9L-NP-Vl-np-v]{2} ?"
        r"[A-Za-z][0-9L-NP-Vl-np-v]{3} ?[A-Za-z]",
        "codice fiscale|cod. fisc|c.f|cf",
        r"[A-Z]{6}[0-9L-NP-V]{2}[A-EHLMPRST][0-9L-NP-V]{2}[A-Z][0-9L-NP-V]{3}[A-Z]",
    ),
    NumberKind(_TAX, "it.iva", r"(?:IT ?)?" + _digits(11), "partita iva|p. iva|p.iva|piva|codice fiscale"),
    NumberKind(_TAX, "pt.nif", _digits(9), "nif|contribuinte|nipc|número de identificação fiscal"),
    NumberKind(
        _PERSON,
        "pt.cc",
        r"\d{8} ?\d ?[A-Z0-9]{2}\d",
        "cartão de cidadão|cc|bilhete de identidade",
        r"\d{8} \d ?[A-Z]{2}\d",
    ),
    NumberKind(_PERSON, "nl.bsn", _digits(9), "bsn|burgerservicenummer|sofinummer|sofi-nummer|sofi"),
    NumberKind(_TAX, "nl.btw", r"(?:NL ?)?\d{9} ?B ?\d{2}", "btw|btw-nummer|omzetbelasting", r"NL\d{9}B\d{2}"),
    NumberKind(
        _PERSON,
        "be.nn",
        _digits(11),
        "rijksregisternummer|numéro national|registre national|insz|niss|rrn|nationaal nummer",
        r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}",
    ),
    NumberKind(
        _TAX,
        "be.vat",
        r"(?:BE ?)?[01]?\d{3}[. ]?\d{3}[. ]?\d{3}",
        "btw|tva|ondernemingsnummer|numéro d'entreprise|kbo|bce",
        r"BE ?[01]\d{3}\.?\d{3}\.?\d{3}",
    ),
    NumberKind(_TAX, "lu.tva", r"(?:LU ?)?\d{8}", "tva"),
    NumberKind(
        _PERSON,
        "ie.pps",
        r"\d{7}[A-Wa-w][A-Ia-iWw]?",
        "pps|ppsn|pps number|personal public service",
        r"\d{7}[A-W][A-IW]",
    ),
    NumberKind(_PERSON, "gb.upn", r"[A-Z]\d{11}[0-9A-Z]", "upn|unique pupil number"),
    NumberKind(_TAX, "gb.utr", _digits(10), "utr|unique taxpayer reference|unique tax reference"),
    NumberKind(
        _TAX, "gb.vat", r"(?:GB ?)?\d{3} ?\d{4} ?\d{2}(?: ?\d{3})?", "vat number|vat no|vat registration|vat reg"
    ),
    NumberKind(
        _TAX,
        "eu.vat",
        r"[A-Z]{2} ?[0-9A-Z]{2,12}",
        "vat|vat number|vat id|ust-id|ust-idnr|ustid|umsatzsteuer-id|tva|iva|btw|moms|alv|dph|dič|vat-ue",
        r"(?:ATU\d{8}|(?:DE|PT|EE|EL)\d{9}|(?:HU|FI|DK|LU|MT|SI)\d{8}|(?:IT|HR|LV)\d{11}|PL\d{10}|SE\d{12}|ES[A-Z]\d{7}[0-9A-Z]|FR[0-9A-Z]{2}\d{9}|CY\d{8}[A-Z])",
    ),
    NumberKind(_PERSON, "dk.cpr", r"\d{6}[- ]?\d{4}", "cpr|cpr-nummer|cpr-nr|personnummer"),
    NumberKind(_TAX, "dk.cvr", _digits(8), "cvr|cvr-nr|momsnummer"),
    NumberKind(
        _PERSON,
        "se.personnummer",
        r"(?:19|20)?\d{6}[-+ ]?\d{4}",
        "personnummer|personnr|samordningsnummer|personal number|pnr",
        r"(?:19|20)?\d{6}[-+]\d{4}",
    ),
    NumberKind(_TAX, "se.orgnr", r"\d{6}-?\d{4}", "organisationsnummer|orgnr|org.nr"),
    NumberKind(
        _PERSON,
        "no.fodselsnummer",
        r"\d{6} ?\d{5}",
        "fødselsnummer|fnr|personnummer|fodselsnummer|d-nummer",
        r"\d{6} ?\d{5}",
    ),
    NumberKind(_TAX, "no.orgnr", r"\d{3} ?\d{3} ?\d{3}", "organisasjonsnummer|orgnr|org.nr"),
    NumberKind(_ACCOUNT, "no.kontonr", r"\d{4}[. ]?\d{2}[. ]?\d{5}", "kontonr|kontonummer|konto"),
    NumberKind(
        _PERSON,
        "fi.hetu",
        r"\d{6}[-+A-Fa-fU-Yu-y]\d{3}[0-9A-Ya-y]",
        "henkilötunnus|hetu|personbeteckning",
        r"\d{6}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]",
    ),
    NumberKind(_TAX, "fi.ytunnus", r"\d{7}-\d", "y-tunnus|fo-nummer"),
    NumberKind(_PERSON, "is_.kennitala", r"\d{6}-?\d{4}", "kennitala|kt", r"\d{6}-\d{4}"),
    NumberKind(_PERSON, "ee.ik", _digits(11), "isikukood|isikukoodi"),
    NumberKind(_PERSON, "lt.asmens", _digits(11), "asmens kodas|asmens kodą|asmens kodo"),
    NumberKind(_PERSON, "lv.pvn", r"\d{6}-?\d{5}", "personas kods|personas kodu"),
    NumberKind(_PERSON, "cz.rc", r"\d{6}/?\d{3,4}", "rodné číslo|rodného čísla|rodným číslem|rč|r.č", r"\d{6}/\d{3,4}"),
    NumberKind(_TAX, "cz.dic", r"(?:CZ ?)?\d{8,10}", "dič|ičo|ič"),
    NumberKind(_TAX, "sk.dph", r"(?:SK ?)?\d{10}", "dič|ič dph"),
    NumberKind(_PERSON, "hu.anum", r"\d{8}-?\d-?\d{2}|\d{8}", "adószám|adóazonosító"),
    NumberKind(_PERSON, "ro.cnp", _digits(13), "cnp|cod numeric personal", r"[1-8]\d{12}"),
    NumberKind(_TAX, "ro.cui", r"(?:RO ?)?\d{4,10}", "cui|cif|cod fiscal"),
    NumberKind(_PERSON, "bg.egn", _digits(10), "егн|egn|единен граждански номер"),
    NumberKind(_PERSON, "hr.oib", _digits(11), "oib|osobni identifikacijski broj"),
    NumberKind(_PERSON, "si.emso", _digits(13), "emšo|emso|jmbg|matični broj|јмбг", r"[0-3]\d[01]\d[09]\d{8}"),
    NumberKind(_TAX, "si.ddv", r"(?:SI ?)?\d{8}", "davčna številka|davčno številko"),
    NumberKind(_TAX, "rs.pib", _digits(9), "pib|пиб"),
    NumberKind(_PERSON, "gr.amka", _digits(11), "amka|αμκα"),
    NumberKind(_TAX, "gr.vat", _digits(9), "αφμ|afm|α.φ.μ"),
    NumberKind(_PERSON, "tr.tckimlik", _digits(11), "kimlik|tckn|tc kimlik|t.c. kimlik|kimlik no|kimlik numarası"),
    NumberKind(_TAX, "tr.vkn", _digits(10), "vergi|vkn|vergi kimlik|vergi no|vergi numarası"),
    NumberKind(_TAX, "ru.inn", r"\d{10}(?:\d{2})?", "инн|inn"),
    NumberKind(_PERSON, _snils, _digits(11), "снилс|snils", r"\d{3}-\d{3}-\d{3} \d{2}"),
    NumberKind(_TAX, "ru.ogrn", r"\d{13}(?:\d{2})?", "огрн|огрнип|ogrn"),
    NumberKind(_TAX, "ua.rntrc", _digits(10), "рнокпп|іпн|ипн|rnokpp"),
    NumberKind(_TAX, "ua.edrpou", _digits(8), "єдрпоу|едрпоу|edrpou"),
    # Asia, Africa, Oceania
    NumberKind(
        _PERSON,
        "in_.aadhaar",
        _digits(12),
        "aadhaar|aadhar|adhaar|adhar|uidai|uid|आधार",
        r"[2-9]\d{3}([ -])\d{4}\1\d{4}",
    ),
    NumberKind(_PERSON, "in_.vid", _digits(16), "vid|virtual id"),
    NumberKind(
        _TAX,
        "in_.pan",
        r"[A-Za-z]{5}\d{4}[A-Za-z]",
        "pan|pan card|pan no|pan number|permanent account",
        r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]",
    ),
    NumberKind(
        _TAX,
        "in_.gstin",
        r"\d{2}[A-Za-z]{5}\d{4}[A-Za-z][0-9A-Za-z][Zz][0-9A-Za-z]",
        "gst|gstin|gst no",
        r"\d{2}[A-Z]{5}\d{4}[A-Z][0-9A-Z]Z[0-9A-Z]",
    ),
    NumberKind(_PERSON, "in_.epic", r"[A-Za-z]{3}\d{7}", "voter id|epic|voter card|election card"),
    NumberKind(_PERSON, "pk.cnic", _digits(13), "cnic|nic", r"\d{5}-\d{7}-\d"),
    NumberKind(
        _PERSON,
        "cn.ric",
        r"\d{17}[0-9Xx]",
        "身份证|身份證|身份证号|公民身份号码|identity card",
        r"[1-9]\d{5}(?:19|20)\d{9}[0-9X]",
    ),
    NumberKind(_TAX, "cn.uscc", r"[0-9A-HJ-NPQRTUWXY]{18}", "信用代码|税号|uscc|纳税人识别号"),
    NumberKind(_PERSON, _hkid, r"[A-Z]{1,2}\d{6}\([0-9A]\)", "hkid", r"[A-Z]{1,2}\d{6}\([0-9A]\)"),
    NumberKind(_PERSON, _tw_id, r"[A-Z][1289]\d{8}", "身分證|身分證字號|身份證|national id", r"[A-Z][12]\d{8}"),
    NumberKind(_PERSON, "jp.in_", r"\d{4} ?\d{4} ?\d{4}", "マイナンバー|個人番号|my number|mynumber"),
    NumberKind(_TAX, "jp.cn", _digits(13), "法人番号"),
    NumberKind(_PERSON, "kr.rrn", r"\d{6}-?[1-8]\d{6}", "주민등록번호|주민번호|rrn", r"\d{6}-[1-8]\d{6}"),
    NumberKind(_TAX, "kr.brn", r"\d{3}-?\d{2}-?\d{5}", "사업자등록번호|사업자 등록번호", r"\d{3}-\d{2}-\d{5}"),
    NumberKind(_PERSON, "th.pin", _digits(13), "บัตรประชาชน|เลขบัตร|citizen id|thai id", r"\d-\d{4}-\d{5}-\d{2}-\d"),
    NumberKind(
        _PERSON, "my.nric", r"\d{6}-?\d{2}-?\d{4}", "nric|mykad|ic number|no. kp|kad pengenalan", r"\d{6}-\d{2}-\d{4}"
    ),
    NumberKind(_PERSON, _nric, r"[STFGMstfgm]\d{7}[A-Za-z]", "nric|fin|nric/fin", r"[STFGM]\d{7}[A-Z]"),
    NumberKind(_PERSON, "id.nik", _digits(16), "nik|ktp|nomor induk kependudukan"),
    NumberKind(
        _TAX, "id.npwp", r"\d{2}\.?\d{3}\.?\d{3}\.?\d-?\d{3}\.?\d{3}", "npwp", r"\d{2}\.\d{3}\.\d{3}\.\d-\d{3}\.\d{3}"
    ),
    NumberKind(_TAX, "vn.mst", r"\d{10}(?:-\d{3})?", "mst|mã số thuế"),
    NumberKind(
        _PERSON, "il.idnr", r"\d{7,8}-?\d", "teudat zehut|zehut|id number|identity number|תעודת זהות|מספר זהות|ת.ז"
    ),
    NumberKind(
        _PERSON,
        "za.idnr",
        r"\d{6} ?\d{4} ?\d{3}",
        "south african id|sa id|id number|identity number|said",
        r"\d{6} ?\d{4} ?[01]8\d",
    ),
    NumberKind(_PERSON, "mu.nid", r"[A-Z]\d{12}[0-9A-Z]", "nid|national id"),
    NumberKind(_TAX, "ke.pin", r"[AP]\d{9}[A-Z]", "kra|kra pin", r"[AP]\d{9}[A-Z]"),
    NumberKind(_TAX, "au.tfn", r"\d{3} ?\d{3} ?\d{2,3}", "tfn|tax file number"),
    NumberKind(_TAX, "au.abn", r"\d{2} ?\d{3} ?\d{3} ?\d{3}", "abn|business number"),
    NumberKind(_TAX, "au.acn", r"\d{3} ?\d{3} ?\d{3}", "acn|company number"),
    NumberKind(_TAX, "nz.ird", r"\d{2,3}-?\d{3}-?\d{3}", "ird|ird number"),
    # The Americas
    NumberKind(
        _PERSON, "br.cpf", r"\d{3}\.?\d{3}\.?\d{3}-?\d{2}", "cpf|cadastro de pessoa", r"\d{3}\.\d{3}\.\d{3}-\d{2}"
    ),
    NumberKind(
        _TAX,
        "br.cnpj",
        r"[0-9A-Z]{2}\.?[0-9A-Z]{3}\.?[0-9A-Z]{3}/?[0-9A-Z]{4}-?\d{2}",
        "cnpj",
        r"\d{2}\.\d{3}\.\d{3}/\d{4}-\d{2}",
    ),
    NumberKind(
        _PERSON,
        "mx.curp",
        r"[A-Za-z]{4}\d{6}[HMXhmx][A-Za-z]{5}[0-9A-Za-z]\d",
        "curp",
        r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[0-9A-Z]\d",
    ),
    NumberKind(_TAX, "mx.rfc", r"[A-Za-z&]{3,4}[ -]?\d{6}[ -]?[0-9A-Za-z]{3}", "rfc"),
    NumberKind(_ACCOUNT, _clabe, _digits(18), "clabe|cuenta clabe|clabe interbancaria"),
    NumberKind(_TAX, "ar.cuit", _digits(11), "cuit|cuil", r"\d{2}-\d{8}-\d"),
    NumberKind(_PERSON, "ar.dni", r"\d{2}\.?\d{3}\.?\d{3}", "dni"),
    NumberKind(_ACCOUNT, "ar.cbu", _digits(22), "cbu", r"\d{22}"),
    NumberKind(
        _PERSON, "cl.rut", r"\d{1,2}\.?\d{3}\.?\d{3}-?[0-9Kk]", "rut|run|cédula", r"\d{1,2}\.\d{3}\.\d{3}-[0-9Kk]"
    ),
    NumberKind(_TAX, "co.nit", r"\d{1,3}\.?\d{3}\.?\d{3}-?\d", "nit"),
    NumberKind(_PERSON, _any, r"\d{1,3}(?:\.?\d{3}){2,3}", "cédula de ciudadanía|cédula|cedula"),
    NumberKind(_PERSON, "pe.cui", r"\d{8}-?[0-9A-K]", "cui|dni"),
    NumberKind(_TAX, "pe.ruc", _digits(11), "ruc"),
    NumberKind(_PERSON, "ec.ci", r"\d{9}-?\d", "cédula|cédula de identidad|c.i"),
    NumberKind(_TAX, "ec.ruc", _digits(13), "ruc"),
    NumberKind(_PERSON, "do.cedula", _digits(11), "cédula", r"\d{3}-\d{7}-\d"),
    NumberKind(_TAX, "uy.rut", _digits(12), "rut"),
    NumberKind(_TAX, "ve.rif", r"[VEJPGvejpg]-?\d{8}-?\d", "rif", r"[VEJPG]-\d{8}-\d"),
    NumberKind(_PERSON, "cr.cpf", r"\d-?\d{4}-?\d{4}", "cédula"),
    NumberKind(_TAX, "sv.nit", r"\d{4}-?\d{6}-?\d{3}-?\d", "nit", r"\d{4}-\d{6}-\d{3}-\d"),
    NumberKind(_TAX, "gt.nit", r"\d{5,8}-?[0-9K]", "nit"),
    NumberKind(_TAX, "us.ein", r"\d{2}-?\d{7}", "ein|employer identification|fein|federal tax id"),
    NumberKind(_TAX, "us.atin", r"9\d{2}-?\d{2}-?\d{4}", "atin"),
    NumberKind(_TAX, "us.ptin", r"P\d{8}", "ptin"),
    NumberKind(_TAX, "ca.bn", r"\d{9}(?: ?RC ?\d{4})?", "business number|bn"),
    NumberKind(_PERSON, "ca.bc_phn", r"9\d{3} ?\d{3} ?\d{3}", "phn|personal health number"),
    # Banks
    NumberKind(_CODE, "us.rtn", _digits(9), "routing|routing number|aba|aba number|rtn|ach|routing transit"),
    NumberKind(_CODE, _any, r"\d{2}[- ]?\d{2}[- ]?\d{2}", "sort code|sortcode|sort-code"),
    NumberKind(_CODE, _any, r"\d{3}[- ]?\d{3}", "bsb|bsb number"),
    NumberKind(_CODE, _any, r"[A-Za-z]{4}0[0-9A-Za-z]{6}", "ifsc|ifsc code", r"[A-Z]{4}0\d{6}"),
    NumberKind(
        _CODE, _any, r"[A-Za-z]{6}[0-9A-Za-z]{2}(?:[0-9A-Za-z]{3})?", "bic|swift|swift code|swift/bic|bic/swift"
    ),
    NumberKind(_CODE, _any, r"\d{3} ?\d{3} ?\d{2}", "blz|bankleitzahl"),
    NumberKind(
        _ACCOUNT,
        _any,
        _digits(6, 17),
        "bank account|bank account number|kontonummer|kontonr|numer konta|numer rachunku|numéro de "
        "compte|número de cuenta|numero di conto|número da conta|bankrekening|银行卡|银行账号|卡号|口座番号",
    ),
)

# How far after its word a number may stand: a few words, and not in the next sentence but one.
_NEAR = 48
_LONGEST = 40
# What may follow a word that names a number, besides its own endings: `PESEL-u`, `NIP:`, `DNI nº`.
_GAP = r"[^0-9\n]{0,%d}?"
_ENDS = rb"(?![0-9A-Za-z]|[./-]\d|,\d{3}\d)"
_STARTS = rb"(?<![0-9A-Za-z+])(?<!\d[./-])"
_DIGIT = re.compile(rb"\d")
_SEPARATORS = re.compile(rb"[ _-]")
_COMPACT = re.compile(r"[ ./-]")
# Words that mean other things more often: `pan`, `run`. They must be in capitals, or be the name of a field.
_CAPITALS = frozenset(
    b"pan nit run bn cc cf kt ic fin nie rut ach cui cif kp epic vid said bic vat uid sofi inn ein aba nic acn".split()
)


# Words that mean one number and nothing else: right after them it is found even if a check digit is wrong, since a
# number with a mistake still tells who is meant.
_UNMISTAKABLE = (
    "pesel|peselu|peselem|nip|nipu|nipem|regon|regonu|regonem|aadhaar|aadhar|cpf|cnpj|dni|codice fiscale|"
    "partita iva|bsn|burgerservicenummer|steuer-id|steueridentifikationsnummer|curp|cuit|cuil|personnummer|"
    "henkilötunnus|fødselsnummer|rodné číslo|cnp|oib|снилс|tckn|tc kimlik|numéro de sécurité sociale|"
    "rijksregisternummer|身份证|身份证号|주민등록번호"
)
_NEXT = 20


@cache
def _unmistakable() -> frozenset[bytes]:
    return frozenset(_SEPARATORS.sub(b"", spelled(word)) for word in _UNMISTAKABLE.split("|"))


@cache
def _names() -> tuple[Linear, dict[bytes, tuple[int, ...]]]:
    """Return the pattern of all words, and the rows that each of them names."""
    rows: dict[bytes, list[int]] = {}
    for place, row in enumerate(ROWS):
        for word in row.words.split("|"):
            if word:
                rows.setdefault(spelled(word), []).append(place)
    words = sorted(rows, key=len, reverse=True)
    quoted = b"|".join(re.escape(word).replace(rb"\ ", b"[ _-]?") for word in words)
    capital = b"|".join(re.escape(word.capitalize()) for word in words if word.isalpha() and word.isascii())
    pattern = rb"(?:\A|[^A-Za-z])(?P<value>(?i:" + quoted + rb"))|[a-z](?:" + capital + rb")"
    return Linear(pattern), {word.replace(b" ", b""): tuple(places) for word, places in rows.items()}


@cache
def _shape(place: int) -> re.Pattern[bytes]:
    return re.compile((_GAP % _NEAR).encode() + _STARTS + rb"(?P<number>" + ROWS[place].shape.encode() + rb")" + _ENDS)


@cache
def _lettered(place: int) -> bool:
    """Whether the number may begin with a letter, so that the words before it must be told from it."""
    return re.match(r"\(?\??:?\[?[A-Za-z]", ROWS[place].shape) is not None


@cache
def _before_word(place: int) -> re.Pattern[bytes]:
    return re.compile(_STARTS + rb"(?P<number>" + ROWS[place].shape.encode() + rb")[ ,:(\x80-]{1,4}\Z")


@cache
def _sure() -> tuple[Linear, list[tuple[int, re.Pattern[bytes]]]]:
    """Return one pattern of all shapes that need no word, and each by itself."""
    shapes = [(place, row.sure) for place, row in enumerate(ROWS) if row.sure]
    # RE2 has no way to say `the same sign again`; the pattern of the row has.
    joined = "|".join(shape.replace(r"\1", "[ -]") for _, shape in shapes)
    return Linear(rf"\b(?:{joined})".encode()), [
        (place, re.compile(_STARTS + rb"(?:" + shape.encode() + rb")" + _ENDS)) for place, shape in shapes
    ]


@cache
def _check(place: int) -> Check:
    check = ROWS[place].check
    if not isinstance(check, str):
        return check
    module: Any = import_module(f"stdnum.{check}")
    return module.is_valid


def numbers(data: bytes) -> Iterator[Finding]:
    """Find the numbers of people, companies and banks that are named, or sure by their shape."""
    names, rows = _names()
    for start, end in names.spans(data):
        if data[start : start + 1].islower() and data[start + 1 : start + 2].isupper():
            start += 1
        word = _SEPARATORS.sub(b"", data[start:end].lower())
        places = rows.get(word) or rows.get(data[start:end].lower()) or _spaced(rows, data[start:end])
        if places and _is_word(data, start, end, word):
            yield from _named(data, start, end, places, mistyped=word in _unmistakable())
    sure, shapes = _sure()
    for start, _ in sure.spans(data):
        for place, shape in shapes:
            found = shape.match(data, start)
            if found is not None and _is_sure(data, place, found):
                yield Finding(*found.span(), ROWS[place].kind, 0.97)
                break


def _spaced(rows: dict[bytes, tuple[int, ...]], word: bytes) -> tuple[int, ...]:
    return rows.get(re.sub(rb"[ _]", b"", word.lower()), ())


def _is_word(data: bytes, start: int, end: int, word: bytes) -> bool:
    """Whether the word ends where it was found: with an ending at most, if it is long."""
    written = data[start:end]
    if word in _CAPITALS and written.islower() and data[end : end + 1] not in b":=_\"'#":
        return False
    after = data[end : end + 4]
    if not after[:1].isalpha():
        return True
    if after[:1].isupper() and written[-1:].islower():
        return True
    return len(word) > 4 and (not after[2:3].isalpha() or not after[3:4].isalpha())


def _named(data: bytes, start: int, end: int, places: tuple[int, ...], *, mistyped: bool) -> Iterator[Finding]:
    window = data[end : end + _NEAR + _LONGEST]
    for place in places:
        found = _shape(place).match(window)
        if found is not None and _lettered(place):
            found = _last_of(window, place, found)
        if found is not None and _is_valid(place, found["number"]):
            yield Finding(end + found.start("number"), end + found.end("number"), ROWS[place].kind, 0.98)
            return
    if mistyped:
        for place in places:
            found = _shape(place).match(window)
            if found is not None and found.start("number") <= _NEXT and _DIGIT.search(found["number"]):
                yield Finding(end + found.start("number"), end + found.end("number"), ROWS[place].kind, 0.96)
                return
    if data[start - 1 : start] not in b" (-\x80,:":
        return
    before = data[max(0, start - _LONGEST - 4) : start]
    for place in places:
        found = _before_word(place).search(before)
        if found is not None and _is_valid(place, found["number"]):
            shift = start - len(before)
            yield Finding(shift + found.start("number"), shift + found.end("number"), ROWS[place].kind, 0.98)
            return


def _last_of(window: bytes, place: int, found: re.Match[bytes]) -> re.Match[bytes] | None:
    """Return the first place at which a number that begins with letters is valid; words have its shape as well."""
    line = window.find(b"\n")
    stop = len(window) if line < 0 else line
    shape = re.compile(_STARTS + rb"(?P<number>" + ROWS[place].shape.encode() + rb")" + _ENDS)
    for each in shape.finditer(window, found.start("number"), stop):
        if _DIGIT.search(each["number"]) and _is_valid(place, each["number"]):
            return each
    return None


def _is_valid(place: int, number: bytes) -> bool:
    text = number.decode("latin-1").upper()
    check = _check(place)
    try:
        return check(_COMPACT.sub("", text) if callable(ROWS[place].check) else text)
    except (ValueError, IndexError):
        return False


def _is_sure(data: bytes, place: int, found: re.Match[bytes]) -> bool:
    if not _is_valid(place, found[0]):
        return False
    words = context.before(data, found.start())
    if found[0].isdigit() and (context.PHONE.search(words) or len(set(found[0])) < 4):
        return False
    return not context.says_other(words) and not context.says_money(context.after(data, found.end()))
