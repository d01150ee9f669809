"""The numbers that states and banks issue, as a table: labels, formats and checks."""

from collections.abc import Callable
from typing import NamedTuple

Check = Callable[[str], bool]


def _weighed(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def _clabe(number: str) -> bool:
    """Bank accounts in Mexico: the last of 18 digits is the check digit (Banco de México)."""
    total = sum(int(digit) * weight % 10 for digit, weight in zip(number[:17], (3, 7, 1) * 6, strict=False))
    return len(number) == 18 and (total + int(number[17])) % 10 == 0


def _nrb(number: str) -> bool:
    """Bank accounts in Poland: an IBAN without its country code."""
    return len(number) == 26 and int(f"{number[2:]}2521{number[:2]}") % 97 == 1


def _snils(number: str) -> bool:
    """Social insurance in Russia: nine digits and two check digits."""
    return _weighed(number, (9, 8, 7, 6, 5, 4, 3, 2, 1)) % 101 % 100 == int(number[9:])


def _nric(number: str) -> bool:
    """Residents and foreigners in Singapore: seven digits and a check letter."""
    total = _weighed(number[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"T": 4, "G": 4, "M": 3}.get(number[0], 0)
    letters = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "M": "XWUTRQPNJLK"}.get(number[0], "XWUTRQPNMLK")
    return letters[total % 11] == number[8]


def _hkid(number: str) -> bool:
    """Identity cards in Hong Kong: one or two letters, six digits, and a check digit or A."""
    plain = number.replace("(", "").replace(")", "").rjust(9)
    values = [36 if char == " " else int(char, 36) for char in plain]
    return sum(value * weight for value, weight in zip(values, range(9, 0, -1), strict=True)) % 11 == 0


def _tw_id(number: str) -> bool:
    """Identity cards in Taiwan: a letter for the county and nine digits, the last of which is the check digit."""
    county = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0]) + 10
    return (county // 10 + county % 10 * 9 + _weighed(number[1:], (8, 7, 6, 5, 4, 3, 2, 1, 1))) % 10 == 0


def _pl_card(number: str) -> bool:
    """Identity cards in Poland: the fourth of nine characters is the check digit."""
    values = [int(char, 36) for char in number]
    return (_sum(values[:3], (7, 3, 1)) + _sum(values[4:], (7, 3, 1, 7, 3))) % 10 == values[3]


def _sum(values: list[int], weights: tuple[int, ...]) -> int:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def _any(number: str) -> bool:
    """Accept any number: it has no check digit, so format and label must suffice."""
    return bool(number)


_PERSON, _TAX, _CODE, _ACCOUNT = "NATIONAL_ID", "TAX_ID", "BANK_CODE", "BANK_ACCOUNT"


class NumberKind(NamedTuple):
    """A kind of number: what it identifies, its check, its format, and its labels."""

    kind: str
    check: str | Check
    shape: str
    words: str = ""
    sure: str = ""
    """The format in which it is found without a label; empty if there is none."""


def _digits(count: int, most: int | None = None) -> str:
    """Return the pattern of digits with single spaces, dots, dashes or slashes between them."""
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
