"""Requests that people make of assistants in general: what a team does not offer mostly resembles one of these.

A text that is more similar to one of them than to any example of a team is probably not for that team. They cover the
subjects that assistants are asked about: weather, music, travel, food, money, health, school, home; 146 are in English
and 81 in German. A team's own subject may be among them:
`embeddings` leaves out those that are as similar to an example as the team's examples usually are to each other.
"""

ENGLISH = """
will it be sunny at the weekend
do I need an umbrella today
how cold does it get tonight
put on some rock music
play the next song
turn the volume down
switch off the bedroom lamp
set the heating to twenty degrees
lock the front door
wake me up at seven
remind me to call my mother
set a timer for ten minutes
add milk to my shopping list
what is on my to-do list
what time is it in New York
what day is it today
how do I get to the airport
how is the traffic right now
how far is it to Berlin
get me a cab
when does the next bus come
book a plane ticket to Madrid
find me a cheap hotel by the sea
reserve a table at an Italian restaurant
which museums should I visit in Paris
do I need a visa for India
how do I cook rice
give me a recipe for pancakes
how many calories does a banana have
what can I substitute for butter
order some sushi
have groceries delivered
buy a new pair of running shoes
compare the prices of two phones
what is my bank balance
send money to a friend
what is the exchange rate of the dollar
how do I invest in shares
raise the limit of my credit card
pay the electricity bill
help me with my tax return
my head hurts, what should I take
is this rash dangerous
make an appointment with the dentist
how much sleep does an adult need
give me an exercise for my back
who wrote Hamlet
what is the capital of Australia
how high is the Eiffel tower
when did the war end
what does photosynthesis mean
how many people live in China
solve this equation
what is twelve percent of eighty
convert inches to centimetres
translate thank you into Japanese
how do you spell necessary
give me a synonym for beautiful
write a letter of complaint
write a birthday greeting for my colleague
summarise this article
correct the grammar of my text
make up a story for children
tell me something funny
sing a song
are you a human being
what is your name
who made you
how old are you
do you love me
let us play a game
flip a coin
give me a riddle
who won the football game
when is the next home match
what is on television tonight
recommend a series to watch
buy two cinema tickets
what is in the news today
who is the president
how do I vote
where can I renew my identity card
apply for a driving licence
register my dog with the city
find a lawyer for me
draft a contract
translate a legal document
find me a job
write my curriculum vitae
what is a fair salary for a nurse
ask my boss for a day off
prepare me for an interview
help me with my homework
explain fractions to my son
how do I learn to play the guitar
find a language course
my computer is slow
connect me to the wireless network
I forgot the password of my mail
how do I take a screenshot
install this program
write a script that renames files
fix the error in my code
unlock my mobile phone
call my brother
send a message to Anna
read my e-mails to me
post this picture
take a photo
my toilet is blocked
repaint the fence
mow the lawn
how do I remove a wine stain
clean the flat
when should I plant tomatoes
walk the dog
how do I train a puppy
feed the cat while I am away
look after my children tonight
find a nursery
what should I name my baby
plan a wedding
what should I give my wife for her birthday
send flowers to my grandmother
find me a date
how do I get over a break-up
I feel lonely
what is the meaning of life
cancel my streaming subscription
end my gym membership
move my belongings to another city
rent out my apartment
sell my old bike
repair my bicycle
charge my electric car
fill up the tank
find a parking spot
where did I leave my glasses
look for my wallet
search for a missing person
measure the length of the room
design a logo
print business cards
organise a party for fifty guests
hire a photographer
back up my photos
"""

GERMAN = """
scheint am Wochenende die Sonne
brauche ich heute einen Schirm
mach Rockmusik an
spiel das nächste Lied
schalte die Lampe im Schlafzimmer aus
stell die Heizung auf zwanzig Grad
weck mich um sieben
erinnere mich daran, meine Mutter anzurufen
setz Milch auf die Einkaufsliste
wie viel Uhr ist es in New York
welcher Tag ist heute
wie komme ich zum Flughafen
wie ist der Verkehr gerade
hol mir ein Taxi
wann kommt der nächste Bus
buche ein Flugticket nach Madrid
finde ein günstiges Hotel am Meer
reserviere einen Tisch beim Italiener
wie kocht man Reis
gib mir ein Rezept für Pfannkuchen
wie viele Kalorien hat eine Banane
bestell Sushi
kauf mir neue Laufschuhe
wie ist mein Kontostand
schick einem Freund Geld
wie steht der Dollar
wie kaufe ich Aktien
hilf mir bei der Steuererklärung
mein Kopf tut weh
mach einen Termin beim Zahnarzt
wer hat Hamlet geschrieben
was ist die Hauptstadt von Australien
wie hoch ist der Eiffelturm
wie viele Menschen leben in China
löse diese Gleichung
was sind zwölf Prozent von achtzig
rechne Zoll in Zentimeter um
übersetze danke ins Japanische
wie schreibt man Rhythmus
schreib einen Beschwerdebrief
fass diesen Artikel zusammen
denk dir eine Geschichte für Kinder aus
sag mir etwas Lustiges
sing ein Lied
bist du ein Mensch
wie heißt du
lass uns ein Spiel spielen
wer hat das Fußballspiel gewonnen
was läuft heute im Fernsehen
empfiehl mir eine Serie
was gibt es Neues
wer ist der Präsident
wo beantrage ich einen Personalausweis
such mir einen Anwalt
finde eine Arbeit für mich
schreib meinen Lebenslauf
hilf mir bei den Hausaufgaben
wie lerne ich Gitarre
mein Computer ist langsam
ich habe das Passwort meiner Mail vergessen
schreib ein Programm, das Dateien umbenennt
ruf meinen Bruder an
schick Anna eine Nachricht
mach ein Foto
mäh den Rasen
wie entferne ich einen Weinfleck
wann pflanzt man Tomaten
geh mit dem Hund spazieren
pass heute Abend auf die Kinder auf
plane eine Hochzeit
was schenke ich meiner Frau
schick meiner Oma Blumen
ich fühle mich einsam
was ist der Sinn des Lebens
kündige mein Abonnement
verkauf mein altes Fahrrad
repariere mein Rad
wo ist hier ein Parkplatz
such meine Brille
entwirf ein Logo
organisiere ein Fest für fünfzig Gäste
"""

EVERYDAY: tuple[str, ...] = tuple(line for text in (ENGLISH, GERMAN) for line in text.strip().splitlines())
