"""Contradictions between results are found, and what is none is left alone."""

from collections.abc import Sequence
from itertools import combinations, islice, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.words.components import Component, Conflict, Findings, ReportedValue
from remit.words.numbers import OTHER_MEANINGS
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.figures import NAMES, figures
from strategies import json_values

# Each pair says two things of one, of which at most one can be right.
CONTRADICTIONS: list[tuple[Any, Any]] = [
    ("The train leaves at 9:40.", "The train leaves at 10:40."),
    ("The train departs at 9:40 from platform 3.", "Departure of the train: 10:40."),
    ("Flight AF12 lands at 21:15.", "Flight AF12 will land at 9:40 pm."),
    ("The meeting is on 4 March 2026.", "The meeting is on 5 March 2026."),
    ("The meeting is on March 4th.", "The meeting is on 2026-03-05."),
    ("The meeting is on Monday.", "The meeting is on Tuesday."),
    ("The invoice is due by 3 May.", "The invoice is due by 5 May."),
    ("The company was founded in 1998.", "The company was founded in 1999."),
    ("The shop opens at 9 am.", "The shop opens at 10 am."),
    ("The shop closes at noon.", "The shop closes at 2 pm."),
    ("The call starts at 9:40 UTC.", "The call starts at 9:40 EST."),
    ("The total cost is $1,200.", "The total cost is $1,300."),
    ("The total cost is $1.2 million.", "The total cost is $1.4 million."),
    ("The total cost is €500.", "The total cost is $500."),
    ("The fee is 15 %.", "The fee is 12 %."),
    ("The growth rate is 0.15.", "The growth rate is 12%."),
    ("The Paris office has 30 employees.", "The Paris office has 40 employees."),
    ("The Paris office has 30 employees.", "Employees in the Paris office: 40"),
    ("There are three open tickets.", "There are 5 open tickets."),
    ("There are thirteen open tickets.", "There are 20 open tickets."),
    ("There are twenty-five open tickets.", "There are 20 open tickets."),
    ("There are two hundred open tickets.", "There are 2 open tickets."),
    ("One million people live there.", "Two million people live there."),
    ("Open tickets: dreizehn", "Open tickets: 20"),
    ("Open tickets: fünfundzwanzig", "Open tickets: 20"),
    ({"laufzeit": "2 Stunden"}, {"laufzeit": "90 Minuten"}),
    ({"umsatz": "5 Milliarden"}, {"umsatz": "5 Millionen"}),
    ({"termin": "4. März 2026"}, {"termin": "2026-05-04"}),
    ("The parcel weighs 5 kg.", "The parcel weighs 5,500 g."),
    ("The trip takes 90 minutes.", "The trip takes 2 hours."),
    ("The oven must reach 180 °C.", "The oven must reach 400 °F."),
    ("The budget is between $3 and $4 million.", "The budget is $5 million."),
    ("At least 5 years of experience are required.", "At least 7 years of experience are required."),
    ("Temperature fell by 5 %.", "Temperature fell by 9 %."),
    ("Revenue was $5M in 2024.", "Revenue was $6M in 2024."),
    ("Revenue in 2024 was 5 million euros.", "In 2024, revenue was 6 million euros."),
    ("On 4 March sales were 500.", "On 4 March sales were 700."),
    ("The hotel costs $100 and the flight costs $300.", "The hotel costs $300 and the flight costs $100."),
    ("The office has 30 staff and 4 floors.", "The office has 30 staff and 5 floors."),
    ("The loan was approved.", "The loan was rejected."),
    ("The loan was approved.", "The loan was not approved."),
    ("The loan has been approved by the bank.", "The bank rejected the loan."),
    ("The contract includes maintenance.", "The contract does not include maintenance."),
    ("The bridge is safe.", "The bridge isn't safe."),
    ("The bridge is safe.", "The bridge isn’t safe."),
    ("The bridge stands in Lyon.", "The bridge doesn’t stand in Lyon."),
    ("The bridge is safe.", "The bridge is unsafe."),
    ("The test passed.", "The test failed."),
    ("Sales rose in Q3.", "Sales fell in Q3."),
    ("The product is available in Canada.", "The product is not available in Canada."),
    ("There is evidence of fraud.", "There is no evidence of fraud."),
    ("The plan is feasible.", "The plan is impossible."),
    ("Users can export their data.", "Users cannot export their data."),
    ("9:40", "10:40"),
    ("yes", "no"),
    ("42", "The answer is 43."),
    ("Paris", "London"),
    (True, False),
    (42, 43),
    ("approved", "rejected"),
    ("in stock", "out of stock"),
    ({"departure": "9:40"}, {"departure": "10:40"}),
    ({"departure": "2026-03-04T09:40:00Z"}, {"departure": "2026-03-04T10:40:00Z"}),
    ({"price": 12.5}, {"price": 12.54}),
    ({"price": "$100"}, {"price": "€100"}),
    ({"price_usd": 100}, {"price": "€100"}),
    ({"growth_rate": 0.15}, {"growthRate": "12 %"}),
    ({"Growth Rate": 0.15}, {"growth_rate": 0.2}),
    ({"market_size": 4200000000}, {"market_size": "4.5 bn"}),
    ({"approved": True}, {"approved": "no"}),
    ({"city": "Paris"}, {"city": "London"}),
    ({"status": "open"}, {"status": "closed"}),
    ({"status": "approved"}, {"status": "not approved"}),
    ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}),
    ({"items": [{"id": 1, "n": 5}, {"id": 2, "n": 6}]}, {"items": [{"id": 2, "n": 7}, {"id": 1, "n": 5}]}),
    (
        {"cities": [{"city": "Paris", "staff": 5}, {"city": "Lyon", "staff": 6}]},
        {"cities": [{"city": "Lyon", "staff": 9}, {"city": "Nice", "staff": 5}]},
    ),
    ({"rows": [["Paris", 5], ["Lyon", 6]]}, {"rows": [["Lyon", 7], ["Paris", 5]]}),
    ({"cash_flows": [-100, 25, 35]}, {"cash_flows": [-100, 25, 45]}),
    ({"duration_ms": 1500}, {"duration_s": 1.5, "duration": "2 s"}),
    ({"when": "4 March 2026"}, {"when": "2026-03-05"}),
    ({"npv": 24156.72}, {"result": {"npv": 25000}}),
    ({"staff": "30 people"}, {"staff": 40}),
    ({"train": {"departure": "9:40"}}, "The train departs at 10:40."),
    ({"summary": "The loan was approved."}, {"summary": "The loan was rejected."}),
    ({"price": 100}, "The price is $120."),
    (
        "The applicant earns $5,200 a month and rents since 2019. The credit score is 710. The loan is approved.",
        "Credit score: 640. Monthly income looks stable. The loan is rejected.",
    ),
    (
        "## Schedule\n- Departure: 9:40\n- Arrival: 11:20\n- Price: €89",
        "## Schedule\n- Departure: 10:40\n- Arrival: 11:20\n- Price: €89",
    ),
    ("The warehouse in Lyon holds 12,000 pallets.", "The warehouse in Lyon holds 1,200 pallets."),
    ("Payment terms: 30 days.", "Payment terms: 60 days."),
    ("The API supports OAuth.", "The API does not support OAuth."),
    ("The drug is taken at 20 mg twice a day.", "The drug is taken at 200 mg twice a day."),
    ("The patient's blood pressure is 120/80.", "The patient's blood pressure is 160/95."),
    ({"findings": ["The loan was approved.", "Income is stable."]}, {"findings": ["The loan was rejected."]}),
    ("Our recommendation: buy. The target price is $150.", "The target price is $95."),
    ("The server is up since Monday.", "The server is up since Friday."),
    ("Delivery is included in the price.", "Delivery is not included in the price."),
    ("The patch fixes 12 bugs.", "The patch fixes 21 bugs."),
    ("Der Zug fährt um 9:40 ab.", "Der Zug fährt um 10:40 ab."),
    ("Le prix est de 1 200 €.", "Le prix est de 1 500 €."),
    ("Der Preis beträgt 1.200,50 €.", "Der Preis beträgt 1.300,50 €."),
    ({"total": "1.200,50 €"}, {"total": 1300.5}),
    ("Cancellation is free until 24 hours before arrival.", "Cancellation is free until 48 hours before arrival."),
    ("The population of Lyon is 520,000.", "The population of Lyon is 1.2 million."),
    ("Interest rate: 3.5%", "Interest rate: 4.5%"),
    ("Your order will arrive on Friday, 6 March.", "Your order will arrive on Monday, 9 March."),
    ("Yes, the loan was approved.", "No, the loan was not approved."),
    ({"flight": {"number": "AF12", "gate": 12}}, {"flight": {"number": "AF12", "gate": 14}}),
    ("Boarding is at gate 12.", "Boarding is at gate 14."),
    ("The distance is 5 km.", "The distance is 5 miles."),
    ("The file is 5 MB.", "The file is 5 GB."),
    ("The fee is US$50.", "The fee is EUR50."),
    ("HelloFresh entered in 2022 and spends €4 million a year.", "HelloFresh entered in 2023."),
    ("There is no allergy to penicillin.", "He has an allergy to penicillin."),
    ("Shipping is free for orders above $50.", "Shipping is free for orders above $75."),
    ("The order for 5 chairs costs $90.", "The order for 7 chairs costs $120."),
    ("The fund returned 7 % over five years.", "The fund returned 2 % over 5 years."),
    ("The hotel costs $100 and has 40 rooms.", "The hotel has 50 rooms, takes pets and costs $100."),
    ("The trip takes 1 h 57 min.", "The trip takes 2 h 17 min."),
    ("The rope is 5m long.", "The rope is 7m long."),
    ("The train leaves at 9:40 but the bus leaves at 10:00.", "The bus leaves at 11:00."),
    ("Dr. Smith sees 5 patients.", "Dr. Smith sees 7 patients."),
    ({"year": 2024}, {"year": "March 2025"}),
    ("The ticket, the first ticket, costs $5.", "The first ticket costs $7."),
    ("The fee is US$5 to 7 million.", "The fee is $9 million."),
]

# Each pair says the same in other words, or different things, or one of them says nothing.
HARMLESS: list[tuple[Any, Any]] = [
    ("The train leaves at 9:40.", "The train leaves at 9:40 am."),
    ("The train leaves at 21:40.", "The train leaves at 9:40 pm."),
    ("The call starts at 9:40 UTC.", "The call starts at 10:40 CET."),
    ("The shop closes at noon.", "The shop closes at 12:00."),
    ("The train leaves around 9:30.", "The train leaves at 9:40."),
    ("The train leaves before 10:00.", "The train leaves at 9:40."),
    ("The meeting is on 4 March 2026.", "The meeting is on 2026-03-04."),
    ("The meeting is on 4 March.", "The meeting is on March 4th, 2026."),
    ("The meeting is on 03/04/2026.", "The meeting is on 4 March 2026."),
    ("The meeting is on 03/04/2026.", "The meeting is on 3 April 2026."),
    ("The total cost is $1.2 million.", "The total cost is $1,200,000."),
    ("The total cost is $1.2M.", "The total cost is $1,234,567."),
    ("The total cost is 1.2 M USD.", "The total cost is 1200000 dollars."),
    ("The total cost is about $12,000.", "The total cost is $12,043."),
    ("The total cost is $24,157.", "The total cost is $24,156.72."),
    ("The fee is 15 %.", "The fee is 0.15."),
    ("The fee is 15%.", "The fee is 15.3 percent."),
    ("The trip takes 90 minutes.", "The trip takes 1.5 hours."),
    ("The trip takes 2 weeks.", "The trip takes 14 days."),
    ("The parcel weighs 5 kg.", "The parcel weighs 5000 g."),
    ("The oven must reach 180 °C.", "The oven must reach 356 °F."),
    ("There are three open tickets.", "There are 3 open tickets."),
    ("The price is $100.", "The price is €92."),
    ("At least 5 people came.", "7 people came."),
    ("More than 1000 users signed up.", "1,250 users signed up."),
    ("Over 1000 users signed up.", "More than 1200 users signed up."),
    ("The budget is between $3 and $4 million.", "The budget is $3.5 million."),
    ("The delivery takes 5-10 days.", "The delivery takes 7 days."),
    ("The report is due by 5 March.", "The report is due on 4 March."),
    ("The morning train leaves at 9:40.", "The evening train leaves at 18:40."),
    ("The train leaves at 9:40.", "The bus leaves at 10:40."),
    ("The train leaves at 9:40.", "The train arrives at 10:40."),
    ("The train from Paris to Lyon leaves at 9:40.", "The train from Lyon to Paris leaves at 10:40."),
    ("The Paris office has 30 employees.", "The London office has 40 employees."),
    ("The office has 30 employees.", "The office has 4 floors."),
    ("The office is 300 m away.", "The office weighs 500 kg."),
    ("Order 4411 was shipped on 3 March.", "Order 4412 was shipped on 5 March."),
    ("Step 1 takes 5 days.", "Step 2 takes 8 days."),
    ("Revenue was $5M in 2024.", "Revenue was $6M in 2025."),
    ("On 4 March sales were 500.", "On 5 March sales were 700."),
    ("At 9:00 the temperature was 20 °C.", "At 15:00 the temperature was 25 °C."),
    ("Revenue in Q3 was $5M.", "Revenue in Q4 was $6M."),
    ("Profit before tax is $5M.", "Profit after tax is $4M."),
    ("The price including tax is $120.", "The price excluding tax is $100."),
    ("The minimum age is 16.", "The maximum age is 65."),
    ("Sales fell by 5 %.", "Sales fell to 5 %."),
    ("The average price is $10.", "The median price is $8."),
    ("The price of bread is $3.", "The price of milk is $2."),
    ("# Paris\nDeparture: 9:40", "# Lyon\nDeparture: 10:40"),
    ("The conservative scenario yields 5 %.", "The aggressive scenario yields 9 %."),
    ("Version 1.2.3 was released.", "Version 1.2.4 was released."),
    ("Scenario 1 costs $5M.", "Scenario 2 costs $6M."),
    ("The train leaves at 9:40 and arrives at 11:20.", "The train leaves at 9:40."),
    ("Trains leave at 9:40 and 11:40.", "Trains leave at 9:40."),
    ("Trains leave at 9:40. Trains leave at 11:40.", "Trains leave at 11:40."),
    ("The loan was approved.", "The car was not approved."),
    ("The loan may be rejected.", "The loan was approved."),
    ("If the loan is rejected, we stop.", "The loan was approved."),
    ("Was the loan rejected?", "The loan was approved."),
    ("The loan was approved.", "The loan is not insured."),
    ("The task takes no more than 5 days.", "The task takes 4 days."),
    ("Not only sales grew.", "Sales grew."),
    ("Sales rose in 2024.", "Sales fell in 2025."),
    ("The plan is not impossible.", "The plan is feasible."),
    ("The fee is not $50.", "The fee is $60."),
    ("42", "The answer is 42."),
    ("yes", "Yes."),
    (True, "true"),
    ("Paris", "paris "),
    ("1,200", 1200),
    (0.30000000000000004, 0.3),
    ("New York", "new york city"),
    ({"growth": 0.15}, {"growth": "15 %"}),
    ({"growth": 15}, {"growth": "15%"}),
    ({"growth": 15}, {"growth": 0.15}),
    ({"revenue": "1.2 M"}, {"revenue": 1200000}),
    ({"market_size": 4200000000}, {"market_size": "$4.2 billion"}),
    ({"size": 24156.72}, {"size": 24157}),
    ({"duration_ms": 1500}, {"duration": "1.5 s"}),
    ({"price_usd": 100}, {"price": "$100"}),
    ({"departure": "2026-03-04T23:30:00-05:00"}, {"departure": "2026-03-05T04:30:00Z"}),
    ({"departure": "2026-03-04T09:40:00"}, {"departure": "2026-03-04"}),
    ({"approved": True}, {"approved": "yes"}),
    ({"approved": None}, {"approved": True}),
    ({"approved": "n/a"}, {"approved": True}),
    ({"city": "PARIS "}, {"city": "paris"}),
    ({"country": "US"}, {"country": "United States"}),
    ({"name": "Müller"}, {"name": "Muller"}),
    ({"a": 1}, {"b": 2}),
    ({"a": 1}, {}),
    ({"a": 1}, None),
    ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}),
    ({"tags": ["a", "b"]}, {"tags": ["a", "c"]}),
    ({"tags": []}, {"tags": ["a"]}),
    ({"values": [1, 2, 3]}, {"values": [3, 2, 1]}),
    ({"values": [1, 2]}, {"values": [1, 2, 3]}),
    ({"items": [{"id": 1, "n": 5}]}, {"items": [{"id": 2, "n": 7}]}),
    ({"items": [{"n": 5}, {"n": 6}]}, {"items": [{"n": 7}, {"n": 5}]}),
    ({"id": "r-1", "n": 5}, {"id": "r-2", "n": 5}),
    ({"request_id": "a", "timestamp": 1}, {"request_id": "b", "timestamp": 2}),
    ({"confidence": 0.5}, {"confidence": 0.9}),
    ({"summary": "Sales are strong."}, {"summary": "A good year."}),
    ({"reason": "too late"}, {"reason": "no time left"}),
    ({"eta": "9:40"}, {"eta": "in the morning"}),
    ({"us": {"sales": 5}}, {"sales": 7}),
    ({"train": {"departure": "9:40"}}, "The train departs at 9:40."),
    ({"train": {"departure": "9:40"}}, "The bus departs at 10:40."),
    ({"staff": "30 people"}, {"staff": "4 floors"}),
    ({"price": 100}, "The price is $100."),
    ({"weight": "5 kg"}, {"weight": 5}),
    (
        "The applicant earns $5,200 a month and rents since 2019. The credit score is 710. The loan is approved.",
        "Income: $5.2k monthly. With a credit score of 710 the risk is low. She is 34. The loan is approved.",
    ),
    ("Here are 3 reasons to expand.", "Here are 5 reasons to expand."),
    ("I am 80% confident in this.", "I am 95% confident in this."),
    ("As of 12 May the shop is open.", "As of 13 May the shop is open."),
    ("1. Buy 3 tickets\n2. Take the bus", "1. Take the bus\n2. Buy 3 tickets"),
    ("Tickets for adults cost $20.", "Tickets for children cost $10."),
    ("Tickets for adults cost $20.", "Tickets cost $15."),
    ("Online sales rose.", "Online sales fell in Asia."),
    ("The ticket is valid until 3 May.", "The ticket is invalid after 3 May."),
    ("The plan costs $5 per month.", "The plan costs $60 per year."),
    ("Sales rose in January.", "Sales fell in February."),
    ("The system does not store data.", "The system stores data in Europe."),
    ("No issues were found.", "Issues were found in module B."),
    ("Revenue grew 5 % in Q1.", "Revenue grew 7 % in Q2."),
    ("The flight to Rome takes 2 hours.", "The flight to Oslo takes 3 hours."),
    ("Table 1 lists 5 risks.", "Table 2 lists 7 risks."),
    ("Page 3 of the report says so.", "Page 4 of the report says so."),
    ("The room has 2 beds and 1 desk.", "The room has 1 desk."),
    ("It rained on 3 days in May.", "It rained on 5 days in June."),
    ("Team Red scored 3 goals.", "Team Blue scored 2 goals."),
    ("The CEO is 52 years old.", "The CEO has worked there for 12 years."),
    ("The contract runs for 3 years.", "The contract costs $3,000."),
    ({"q1": {"sales": 5}, "q2": {"sales": 6}}, {"q1": {"sales": 5}, "q2": {"sales": 6}, "q3": {"sales": 9}}),
    ({"steps": ["Book the hotel", "Book the flight"]}, {"steps": ["Pack the bags"]}),
    (
        {"recommendations": ["Hire 3 engineers in Berlin this year", "Open an office in Oslo next spring"]},
        {"recommendations": ["Cut the marketing budget by 10 % in Q3"]},
    ),
    ({"best": {"name": "Ann"}}, {"best": {"name": "Ann Smith"}}),
    ("The server uses 16 GB of memory and 4 cores.", "The server has 4 cores."),
    ("The deal is worth €3.2bn.", "The deal is worth EUR 3,200 million."),
    ("Der Preis beträgt 1.200,50 €.", "Der Preis beträgt 1200,50 EUR."),
    ("Call us at 9:00.", "We close at 17:00."),
    ("The project is on time.", "The project was late last year."),
    ("Option A costs $5M.", "Option B costs $7M."),
    ("Plan 1 takes 3 weeks.", "Plan 2 takes 5 weeks."),
    ("In the best case we save $10k.", "In the worst case we lose $5k."),
    ("The old price was $10.", "The new price is $12."),
    ("The price was $10 in 2019.", "The price is $12 now."),
    ("Last year the price was $10.", "This year the price is $12."),
    ("Prices start at $10.", "Prices end at $90."),
    ("Customers in France pay 20 % VAT.", "Customers in Germany pay 19 % VAT."),
    ("The first train leaves at 5:10.", "The last train leaves at 23:50."),
    ("We tested 3 models. Model A reached 91 %.", "We tested 3 models. Model B reached 93 %."),
    ("The train leaves every 20 minutes.", "The train takes 35 minutes."),
    ("The fee is approx. 50 dollars.", "The fee is 51 dollars."),
    ("There are thirteen open tickets.", "There are 13 open tickets."),
    ("There are twenty-five open tickets.", "There are 25 open tickets."),
    ("There are two hundred and fifty open tickets.", "There are 250 open tickets."),
    ("Two hundred people live there.", "200 people live there."),
    ("One million people live there.", "1,000,000 people live there."),
    ("Open tickets: fünfundzwanzig", "Open tickets: 25"),
    ("Open tickets: zweihundertdreißig", "Open tickets: 230"),
    ("The field is null.", "The field is 5."),
    ("An elf lives there.", "A zero-day exploit lives there."),
    ({"laufzeit": "2 Stunden"}, {"laufzeit": "120 min"}),
    ({"umsatz": "5 Milliarden"}, {"umsatz": "5 bn"}),
    ({"termin": "4. März 2026"}, {"termin": "2026-03-04"}),
    ({"termin": "4. Mai 2026"}, {"termin": "May 4, 2026"}),
    ("The trip takes 1 h 57 min.", "The trip takes 117 minutes."),
    ("The library closes at 8 pm on weekdays.", "On Sundays the library closes at 5 pm."),
    ("The fund returned 7 % over five years.", "The fund returned 2 % over one year."),
    ("This one costs $5.", "That one costs $5, the other one more."),
    ("Costs and prices rose by 5 %, and wages fell.", "Wages fell, and costs and prices rose by 5 %."),
    ({"lasts": "2 hours and 30 minutes"}, {"lasts": "2.5 h"}),
    ("Is it free? No. The fee is $5.", "The fee is $5. The answer is no. It is not free."),
    ("The 5b variant and the 3D printer are here.", "The 7b variant and the 2D printer are here."),
    ("The loan was approved and then rejected.", "The loan was approved."),
    ("Sales grew between 2019 and 2024 by 5 %.", "Sales grew between 2014 and 2018 by 9 %."),
    ("The offer is no. 5 in the list.", "The offer is no. 7 in the list."),
    ("The 5G network costs more.", "The 4G network costs more."),
    ({"size": "5 kg"}, {"size": "5 m"}),
    ({"year": 2025}, {"year": "March 2025"}),
    ({"on": "4 March"}, {"on": 2025}),
    ({"fee": "$0"}, {"fee": "€0"}),
    ({"fee": "¥100"}, {"fee": "$5"}),
    ({"price": 1, "Price": 2}, {"price": 1}),
    ({"fee": "$50"}, {"fee": "$47 to $52"}),
    ({"until": "before 5 March"}, {"until": "4 March 2026"}),
    ({"on": "2026-02-31T23:30:00-05:00"}, {"on": "2026-02-31"}),
    ({"on": "9999-12-31T23:30:00-05:00"}, {"on": "9999-12-31"}),
]


def of(*results: Any) -> Findings:
    """Compare results of a, b and c, none of which says how sure it is."""
    return find([Component(name, result) for name, result in zip("abcdefghij", results, strict=False)])


@pytest.mark.parametrize(("one", "other"), CONTRADICTIONS)
def test_what_cannot_both_be_right_is_a_conflict(one: Any, other: Any) -> None:
    """K9: conflicts are shown, in whichever order the results come."""
    here, there = of(one, other), of(other, one)
    assert [len(here.conflicts), len(there.conflicts)] in ([1, 1], [2, 2])
    assert here.agreement == there.agreement < 1


@pytest.mark.parametrize(("one", "other"), HARMLESS)
def test_what_can_both_be_right_is_none(one: Any, other: Any) -> None:
    """K9: a false conflict costs the user as much as a hidden one."""
    assert [of(one, other).conflicts, of(other, one).conflicts] == [(), ()]


# ── what is said of a conflict ────────────────────────────────────────────────────────────────────────────────────────


def test_a_conflict_names_the_place_the_values_and_who_says_which() -> None:
    found = find(
        [
            Component("rail", {"flights": [{"id": "AF12", "departure": "9:40"}]}, 0.9),
            Component("air", {"flights": [{"id": "AF12", "departure": "10:40"}]}, 0.4),
            Component("bus", {"flights": [{"id": "AF12", "departure": "09:40"}]}),
        ]
    )
    assert found == Findings(
        conflicts=(
            Conflict(
                path="flights[AF12].departure",
                severity="high",
                values=(ReportedValue("9:40", ("rail", "bus")), ReportedValue("10:40", ("air",))),
                preferred="9:40",
            ),
        ),
        agreement=1 / 3,
    )


def test_in_text_the_words_that_both_use_say_what_it_is_about() -> None:
    conflict = of("The train to Lyon leaves at 9:40.", "The train leaves at 10:40.").conflicts[0]
    assert conflict == Conflict(
        path="train leaves",
        severity="high",
        values=(ReportedValue("9:40", ("a",)), ReportedValue("10:40", ("b",))),
        question="The sources disagree on “train leaves”: 9:40, or 10:40. Which one should count?",
    )


@pytest.mark.parametrize(
    ("sure", "preferred"),
    [
        ((0.9, 0.4), 5),
        ((0.4, 0.9), 7),
        ((0.5, 0.5), None),
        ((None, None), None),
        ((None, 0.1), 7),
        ((0.501, 0.499), None),
    ],
)
def test_the_more_confident_source_is_preferred_and_on_a_tie_the_user_is_asked(
    sure: tuple[float | None, float | None], preferred: int | None
) -> None:
    """K9: the more confident source preferred, and the user asked where it matters."""
    conflict = find([Component("a", {"n": 5}, sure[0]), Component("b", {"n": 7}, sure[1])]).conflicts[0]
    assert conflict.preferred == preferred
    assert (conflict.question is None) == (preferred is not None)


@pytest.mark.parametrize(
    ("one", "other", "severity"),
    [
        ({"n": 100}, {"n": 150}, "high"),
        ({"n": 100}, {"n": 105}, "medium"),
        ({"n": 10_000}, {"n": 10_001}, "low"),
        ({"city": "Paris"}, {"city": "London"}, "medium"),
        ({"status": "Paris"}, {"status": "London"}, "high"),
        ({"safe": True}, {"safe": False}, "high"),
        ({"stock": "available"}, {"stock": "not available"}, "high"),
        ({"at": "9:40"}, {"at": "9:42"}, "medium"),
        ({"at": "9:40"}, {"at": "11:40"}, "high"),
        ({"on": "2026-03-04"}, {"on": "2026-03-05"}, "high"),
        ({"flow": [1, 2, 3]}, {"flow": [1, 2, 4]}, "high"),
        ({"flow": [5]}, {"flow": 7}, "high"),
        ("At least 5 people are needed.", "At least 9 people are needed.", "high"),
        ("The loan was approved.", "The loan was rejected.", "high"),
    ],
)
def test_how_grave_a_conflict_is_follows_from_how_far_apart_the_values_are(one: Any, other: Any, severity: str) -> None:
    assert [each.severity for each in of(one, other).conflicts] == [severity]


def test_of_what_hardly_matters_nobody_is_asked() -> None:
    """K9: the user is asked where it matters."""
    assert [each.question for each in of({"n": 10_000}, {"n": 10_001}).conflicts] == [None]


def test_the_gravest_come_first() -> None:
    one, other = {"b": 10_000, "a": 100, "c": 1}, {"b": 10_001, "a": 105, "c": 2}
    assert [each.path for each in of(one, other).conflicts] == ["c", "a", "b"]


def test_a_path_is_shown_as_it_is_written() -> None:
    one, same, other = {"growth_rate": 0.1}, {"growthRate": 0.1}, {"growth_rate": 0.2}
    assert [each.path for each in of(one, other).conflicts] == ["growth_rate"]
    assert [each.path for each in of(one, same, other).conflicts] == ["growthRate"]


def test_several_figures_of_one_source_are_one_side() -> None:
    found = of("Blood pressure is 120/80.", "Blood pressure is 160/95.")
    assert found.conflicts[0].values == (ReportedValue("120 and 80", ("a",)), ReportedValue("160 and 95", ("b",)))


def test_three_sources_can_have_three_opinions() -> None:
    found = of("The fee is $50.", "The fee is $60.", "The fee is $70.")
    assert [each.values for each in found.conflicts] == [
        (ReportedValue("$50", ("a",)), ReportedValue("$60", ("b",)), ReportedValue("$70", ("c",)))
    ]


def test_two_conflicts_in_which_one_source_is_alone_are_one() -> None:
    found = of("The fee is $50.", "The fee is $60.", "The fee is $60.", "The fee is $50.")
    assert [each.values for each in found.conflicts] == [
        (ReportedValue("$50", ("a", "d")), ReportedValue("$60", ("b", "c")))
    ]


def test_what_agrees_with_a_side_is_on_it_though_it_says_more() -> None:
    found = of("The train leaves at 9:40.", "The train leaves at 10:40.", "The early train leaves at 9:40.")
    assert [each.values for each in found.conflicts] == [
        (ReportedValue("9:40", ("a", "c")), ReportedValue("10:40", ("b",)))
    ]


def test_what_two_may_have_rounded_from_the_third_is_no_conflict() -> None:
    assert of("The fee is $51.50.", "The fee is $51.", "The fee is $52.").conflicts == ()
    assert of({"fee": "$51.50"}, {"fee": "$51"}, {"fee": "$52"}).conflicts == ()


def test_whoever_cannot_be_compared_takes_no_side() -> None:
    found = of({"eta": "9:40"}, {"eta": "10:40"}, {"eta": "in the morning"})
    assert [each.values for each in found.conflicts] == [
        (ReportedValue("9:40", ("a",)), ReportedValue("10:40", ("b",)))
    ]


# ── how far they agree ────────────────────────────────────────────────────────────────────────────────────────────────


def test_agreement_is_the_share_of_comparisons_that_agree() -> None:
    one = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert of(one, one | {"d": 5}).agreement == 0.75
    assert of(one, one, one | {"d": 5}).agreement == 10 / 12
    assert [of().agreement, of(one).agreement, of({"a": 1}, {"b": 2}).agreement] == [1, 1, 1]


def test_agreement_counts_what_sentences_say_too() -> None:
    assert (
        of("The fee is $50. The train leaves at 9:40.", "The fee is $50. The train leaves at 10:40.").agreement == 0.5
    )


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

sentences = st.builds(
    "The {} {}.".format,
    st.sampled_from(["train", "morning train", "fee", "Paris office", "loan", "order 12"]),
    st.sampled_from(
        [
            *("leaves at 9:40", "leaves at 10:40", "is $50", "is about $52", "is €50", "has 30 staff", "has 31 staff"),
            *("was approved", "was not approved", "grew by 5 %", "grew to 5 %", "is due on 4 March", "is open"),
        ]
    ),
)
texts = st.lists(sentences, max_size=4).map(" ".join)
fields = st.dictionaries(
    st.sampled_from(["price", "Price", "priceUsd", "train_departure", "items", "approved", "note"]),
    st.sampled_from(
        [
            *(
                1,
                1.0,
                True,
                "yes",
                "$1",
                "1 %",
                "9:40",
                "09:40",
                None,
                "n/a",
                "Paris",
                "paris",
                "4 March",
                "2026-03-04",
            ),
            *(
                [1, 2],
                [2, 1],
                [{"id": 1, "n": 5}],
                [{"id": 1, "n": 6}, {"id": 2, "n": 5}],
                "The train departs at 9:40.",
            ),
        ]
    ),
    max_size=4,
)
results = texts | fields | json_values


@given(st.lists(results, max_size=3), st.lists(st.sampled_from([None, 0.3, 0.8]), min_size=3, max_size=3))
def test_the_order_of_components_changes_nothing_but_the_order_of_listing(
    several: list[Any], sure: list[float | None]
) -> None:
    components = [Component(name, *each) for name, each in zip("abc", zip(several, sure, strict=False), strict=False)]

    def found(order: Sequence[Component]) -> tuple[set[Any], float]:
        findings = find(order)
        listed = {
            (
                each.path,
                each.severity,
                repr(each.preferred),
                frozenset((repr(said.value), frozenset(said.names)) for said in each.values),
                each.question is None,
            )
            for each in findings.conflicts
        }
        return listed, findings.agreement

    assert all(found(order) == found(components) for order in permutations(components))


@given(results)
def test_a_component_never_conflicts_with_itself(result: Any) -> None:
    assert find([Component("a", result), Component("b", result)]).conflicts == ()
    assert find([Component("a", result)]) == Findings()


@given(st.lists(results, min_size=2, max_size=3))
def test_every_conflict_is_between_different_sources(several: list[Any]) -> None:
    for conflict in of(*several).conflicts:
        sides = [set(said.names) for said in conflict.values]
        assert any(one - other and other - one for one in sides for other in sides)


# ── what several sources have in common is read once ──────────────────────────────────────────────────────────────────

prices: list[Any] = [1, True, 1.0, 2, "2 %", None, float("nan"), 10**30]


@st.composite
def things(draw: st.DrawFn) -> list[Any]:
    """Make a list of objects that are told apart by their names."""
    names = draw(st.sets(st.sampled_from(["A1", "B2", "C3"])))
    return [{"name": name, "price": draw(st.sampled_from(prices)), "parts": draw(results)} for name in sorted(names)]


@given(st.lists(things(), min_size=2, max_size=3))
def test_things_of_lists_are_compared_the_same_whether_or_not_they_are_written_the_same(several: list[Any]) -> None:
    # Of what a result says of its own making nothing is compared.
    marked = [[thing | {"elapsed_ms": owner + 0.5} for thing in each] for owner, each in enumerate(several)]
    plain, other = (of(*({"items": each, "fee": 5} for each in results)) for results in (several, marked))
    assert repr(plain) == repr(other)


def test_what_is_written_the_same_is_still_not_the_same() -> None:
    """In JSON not a number is written as nothing, and that says nothing of a price."""
    nothing, infinite, exact = ({"items": [{"id": "a", "price": each}]} for each in (None, float("inf"), 7))
    assert of(nothing, infinite).conflicts == ()
    assert [each.path for each in of(nothing, exact, {"items": [{"id": "a", "price": 8}]}).conflicts] == [
        "items[a].price"
    ]


def test_shared_things_of_lists_count_towards_what_is_looked_at() -> None:
    shared = [{"id": place, "price": place} for place in range(3_000)]
    assert of({"items": shared}, {"items": shared}).complete
    more = {"items": shared, "others": {f"field{place}": place for place in range(2_500)}}
    assert not of({"items": shared}, more).complete


def test_a_sentence_that_one_source_only_asks_is_said_by_the_other_alone() -> None:
    said, asked = "The fee is $5. All is well.", "The fee is $5? All is well."
    assert of(said, asked, "The fee is $6.").conflicts == of(said, "All is well.", "The fee is $6.").conflicts
    assert of(asked, "The fee is $6.").conflicts == ()


def test_a_field_and_a_sentence_that_say_the_same_are_on_one_side() -> None:
    (conflict,) = of({"height": 5}, "The height is 5.", "The height is 7.").conflicts
    assert {said.value: said.names for said in conflict.values} == {"5": ("a", "b"), "7": ("c",)}


def test_what_says_nothing_is_neither_denied_nor_affirmed() -> None:
    conflicts = of("It is so. The bridge stands in Lyon.", "The bridge doesn't stand in Lyon.").conflicts
    assert [each.path for each in conflicts] == ["bridge stand lyon"]


def test_several_figures_of_other_kinds_cannot_be_compared() -> None:
    assert of({"size": "5 kg, 3 m"}, {"size": "9:40 and 10:40"}).conflicts == ()


@pytest.mark.parametrize("name", sorted(NAMES - OTHER_MEANINGS))
def test_a_figure_that_is_a_word_is_found_wherever_it_stands(name: str) -> None:
    assert [(each.start, each.end) for each in figures(f"“{name.upper()}”")] == [(1, 1 + len(name.upper()))]
    assert figures(f"x{name}y") == []


# ── what was made to do harm ──────────────────────────────────────────────────────────────────────────────────────────


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value, {"b": value}]} if depth < 20 else [value]
    return value


@pytest.mark.parametrize(
    "result",
    [
        nested(50_000),
        nested(12),
        ["a"] * 50_000,
        {f"field{place}": place for place in range(20_000)},
        {"k" * 100_000: 1},
        "9" * 100_000,
        "9:" * 50_000,
        "1.2." * 30_000,
        "1,1 " * 25_000,
        "a\n" * 50_000,
        "The fee is $5. " * 10_000,
        "and, " * 20_000,
        "x " * 50_000,
        " ".join(f"The fee of item{place} is ${place}." for place in range(5_000)),
        " ".join(f"The fee is ${place}." for place in range(3_000)),
        "(" * 100_000,
        "#" * 100_000,
        "**" * 50_000,
        "March " * 20_000,
        "-" * 100_000,
        10**400,
        float("nan"),
        float("inf"),
        {"n": [float("nan"), 10**400]},
        "\ue000 5 \ue000",
        "It is 45/67/2020, 25:40, 13 pm, 2026-99-99T99:99:99+99:99, 5x and 12345678901234567890123456.",
        "İ 5 İ is $5. İ is not open.",
        "The fee is 5 mıo, ſix, ſıx, ınr 5 or 5 ſep 2025 on ſunday.",
        "twenty-" * 20_000,
        "two hundred and " * 10_000,
        {"": {"": 5}},
        [[], [1], ["a", 1]],
        [{}, {"a": {}}],
        ["a", {"b": 1}, None],
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, list) else "list",
)
def test_hostile_results_are_compared_in_bounded_time(result: Any) -> None:
    other = "The fee is $7. The loan was rejected." if isinstance(result, str) else {"field0": 7, "n": 5}
    find([Component("a", result), Component("b", other), Component("c", result)])


COLOURS = [f"colour{letter}" for letter in "abcdefghijklmno"]


def test_what_is_not_looked_at_is_admitted() -> None:
    whole = [
        {"a": 1},
        "The fee is $5.",
        {"note": "All is well here, says everybody who was asked about it in the last year."},
    ]
    assert all(of(result, result).complete for result in whole)
    several: list[Any] = [
        {f"field{place}": place for place in range(6_000)},
        "The fee is $5. " * 2_000,
        "The fee is $5." + " " * 100_000,
        " ".join(f"The {' '.join(words)} is $5." for words in islice(combinations(COLOURS, 4), 990)),
        " ".join(f"The fee is ${place}." for place in range(100)),
    ]
    assert not any(of(result, result).complete for result in several)
    fewer = [{f"field{place}": place + more for place in range(200)} for more in (1, 1000)]
    listed = of(*fewer)
    assert (len(listed.conflicts), listed.complete) == (100, False)
    loose = [{f"field{place}{name}": place for place in range(2_000)} for name in "xy"]
    assert not of(*loose).complete
