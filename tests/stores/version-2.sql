-- What version 2 of the store wrote: one run that ended, and one that waited for a person, began in another form and was
-- cut off. Never changed.

BEGIN TRANSACTION;

CREATE TABLE cell (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE checkpoint (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, seq INTEGER NOT NULL);
INSERT INTO checkpoint VALUES(1,0,0);

CREATE TABLE control (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, action TEXT NOT NULL, by TEXT NOT NULL,
        reason TEXT NOT NULL, at_ms INTEGER NOT NULL
    );
CREATE INDEX control_at ON control (at_ms);

CREATE TABLE counter (
        key TEXT PRIMARY KEY, start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, total INTEGER NOT NULL
    ) WITHOUT ROWID;

CREATE TABLE fact (
        id INTEGER PRIMARY KEY, user TEXT NOT NULL, text TEXT NOT NULL, run TEXT NOT NULL, UNIQUE (user, text)
    );
INSERT INTO fact VALUES(1,'u-1','likes tea','run-asks');

CREATE TABLE journal (run TEXT, step TEXT, value BLOB NOT NULL, PRIMARY KEY (run, step)) WITHOUT ROWID;
INSERT INTO journal VALUES('run-asks','step',X'76616C7565');

CREATE TABLE question (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, text TEXT NOT NULL,
        request BLOB NOT NULL, editable BLOB NOT NULL, asked_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        over_ms INTEGER NOT NULL, decision BLOB
    );
INSERT INTO question VALUES(2,'question-two','run-asks','And now?',CAST('{"version":"1.0","id":"id-asks","origin":"user","target":"prime","remit":{"user":"u-1","depth":0,"max_depth":5,"time_ms":30000,"tokens":8000},"objective":"Sort receipts","run":"run-asks","session":"session-asks","created_ms":1000}' AS BLOB),CAST('["input","objective"]' AS BLOB),1,4503599627370496,4503599627370496,NULL);
CREATE INDEX question_open ON question (asked_ms) WHERE decision IS NULL;
CREATE INDEX question_over ON question (over_ms);
CREATE INDEX question_run ON question (run) WHERE decision IS NULL;

CREATE TABLE record (
        seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at_ms INTEGER NOT NULL, run TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL
    );
INSERT INTO record VALUES(1,1,1000,'run-done','session-done',CAST('{"version":"1.0","id":"id-done","origin":"user","target":"prime","remit":{"user":"u-1","depth":0,"max_depth":5,"time_ms":30000,"tokens":8000},"objective":"Sort receipts","run":"run-done","session":"session-done","created_ms":1000}' AS BLOB),X'4AF9541ABF9CBB1BCCC5FD1A5525D3853F8D58AF21BFA47BD8AAEA1F727B4303');
INSERT INTO record VALUES(2,6,5001,'run-done','session-done',CAST('{"version":"1.0","id":"id-done","target":"prime","status":"success","run":"run-done","session":"session-done","result":"sorted"}' AS BLOB),X'003CB71AF0C2686B34CABC0C73467D1F62BC558B16E0987F4DEB8EBBB4C23FAB');
INSERT INTO record VALUES(3,1,1000,'run-asks','session-asks',CAST('{"version":"1.0","id":"id-asks","origin":"user","target":"prime","remit":{"user":"u-1","depth":0,"max_depth":5,"time_ms":30000,"tokens":8000},"objective":"Sort receipts","run":"run-asks","session":"session-asks","created_ms":1000}' AS BLOB),X'EF640BEAB726F1240E33CB22FB045FF58D98CE4AB64BD2CA9DFA4105C36369C3');
INSERT INTO record VALUES(4,1,5000,'run-asks','session-asks',CAST('{"version":"1.0","id":"id-asks","origin":"user","target":"prime","remit":{"user":"u-1","depth":0,"max_depth":5,"time_ms":30000,"tokens":8000},"objective":"Sort one receipt","run":"run-asks","session":"session-asks","created_ms":1000}' AS BLOB),X'EDC9BA5FC2640082DD4066C54F9E4B35EA6A664E8DE6A71E82778907C1831352');
INSERT INTO record VALUES(5,3,5002,'run-asks','session-asks',CAST('{"delegation":"id-one","agent":"prime","text":"half"}' AS BLOB),X'DD96CB8E2B4DBAF19C69CE68E24FF15BDAAB4923ACE5A2C7EAECC8A430C7829F');
CREATE INDEX record_run ON record (run);
CREATE INDEX record_session ON record (session);

CREATE TABLE request (
        first_seq INTEGER PRIMARY KEY, origin TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL,
        run TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, worker TEXT NOT NULL,
        lease_until_ms INTEGER NOT NULL, last_seq INTEGER, finished_ms INTEGER
    , waiting INTEGER NOT NULL DEFAULT 0, spared INTEGER NOT NULL DEFAULT 0, begun_seq INTEGER);
INSERT INTO request VALUES(1,'user','u-1','id-done',X'646967657374','run-done',1,1,'w',6000,2,5001,0,0,NULL);
INSERT INTO request VALUES(3,'user','u-1','id-asks',X'646967657374','run-asks',0,1,'w',6000,NULL,NULL,0,0,4);
CREATE TRIGGER request_asks_no_more AFTER UPDATE OF state ON request WHEN new.state > 0
    BEGIN DELETE FROM question WHERE run = new.run AND decision IS NULL; END;
CREATE TRIGGER request_ended AFTER UPDATE OF state ON request WHEN new.state = 1
    BEGIN DELETE FROM journal WHERE run = new.run; END;
CREATE INDEX request_finished ON request (finished_ms) WHERE state = 1;
CREATE INDEX request_forgotten ON request (run) WHERE state = 2;
CREATE TRIGGER request_forgotten AFTER UPDATE OF state ON request WHEN new.state = 2
    BEGIN DELETE FROM sealed WHERE run = new.run; DELETE FROM journal WHERE run = new.run; END;
CREATE UNIQUE INDEX request_key ON request (id, user, origin) WHERE state < 2;
CREATE INDEX request_lease ON request (lease_until_ms) WHERE state = 0;
CREATE UNIQUE INDEX request_run ON request (run) WHERE state < 2;

CREATE TABLE sealed (
        run TEXT, token TEXT, value BLOB NOT NULL, of_user INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (run, token)
    ) WITHOUT ROWID;
INSERT INTO sealed VALUES('run-done','<EMAIL_1>',X'76616C7565',1,5000);
CREATE INDEX sealed_at ON sealed (at_ms);

CREATE TABLE session (id TEXT PRIMARY KEY, user TEXT NOT NULL, agent TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO session VALUES('given','u-2','tag');

pragma user_version=2;
pragma application_id=1382902132;

COMMIT TRANSACTION;
