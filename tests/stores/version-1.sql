-- What the first released version of the store wrote: one run that ended, and one that was cut off. Never changed.

BEGIN TRANSACTION;

CREATE TABLE cell (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO cell VALUES('key',1,X'76616C7565');

CREATE TABLE checkpoint (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, seq INTEGER NOT NULL);
INSERT INTO checkpoint VALUES(1,0,0);

CREATE TABLE counter (
        key TEXT PRIMARY KEY, start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, total INTEGER NOT NULL
    ) WITHOUT ROWID;
INSERT INTO counter VALUES('count',0,60000,2);

CREATE TABLE fact (
        id INTEGER PRIMARY KEY, user TEXT NOT NULL, text TEXT NOT NULL, run TEXT NOT NULL, UNIQUE (user, text)
    );
INSERT INTO fact VALUES(1,'u-1','likes tea','run-cut');

CREATE TABLE journal (run TEXT, step TEXT, value BLOB NOT NULL, PRIMARY KEY (run, step)) WITHOUT ROWID;
INSERT INTO journal VALUES('run-cut','step',X'76616C7565');

CREATE TABLE record (
        seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at_ms INTEGER NOT NULL, run TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL
    );
INSERT INTO record VALUES(1,1,1000,'run-done','session-done',CAST('{"version":"1.0","id":"id-done","origin":"user","target":"prime","remit":{"user":"u-1","depth":0,"max_depth":5,"time_ms":30000,"tokens":8000},"objective":"Sort receipts","run":"run-done","session":"session-done","created_ms":1000}' AS BLOB),X'4AF9541ABF9CBB1BCCC5FD1A5525D3853F8D58AF21BFA47BD8AAEA1F727B4303');
INSERT INTO record VALUES(2,6,5001,'run-done','session-done',CAST('{"version":"1.0","id":"id-done","target":"prime","status":"success","run":"run-done","session":"session-done","result":"sorted"}' AS BLOB),X'003CB71AF0C2686B34CABC0C73467D1F62BC558B16E0987F4DEB8EBBB4C23FAB');
INSERT INTO record VALUES(3,1,1000,'run-cut','session-cut',CAST('{"version":"1.0","id":"id-cut","origin":"user","target":"prime","remit":{"user":"u-1","depth":0,"max_depth":5,"time_ms":30000,"tokens":8000},"objective":"Sort receipts","run":"run-cut","session":"session-cut","created_ms":1000}' AS BLOB),X'84482691A8C75ABCD9102C989CDC3E3A81B73476AE224A0A1DD84C972E97334D');
INSERT INTO record VALUES(4,3,5002,'run-cut','session-cut',CAST('{"delegation":"id-one","agent":"prime","text":"half"}' AS BLOB),X'F645D1C65AE219B1B400CE408554C7A1BDB956E7742166BACB0B296D7A88743C');
CREATE INDEX record_run ON record (run);
CREATE INDEX record_session ON record (session);

CREATE TABLE request (
        first_seq INTEGER PRIMARY KEY, origin TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL,
        run TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, worker TEXT NOT NULL,
        lease_until_ms INTEGER NOT NULL, last_seq INTEGER, finished_ms INTEGER
    );
INSERT INTO request VALUES(1,'user','u-1','id-done',X'646967657374','run-done',1,1,'w',6000,2,5001);
INSERT INTO request VALUES(3,'user','u-1','id-cut',X'646967657374','run-cut',0,1,'w',6000,NULL,NULL);
CREATE TRIGGER request_ended AFTER UPDATE OF state ON request WHEN new.state = 1
    BEGIN DELETE FROM journal WHERE run = new.run; END;
CREATE INDEX request_finished ON request (finished_ms) WHERE state = 1;
CREATE UNIQUE INDEX request_key ON request (id, user, origin) WHERE state < 2;
CREATE INDEX request_lease ON request (lease_until_ms) WHERE state = 0;
CREATE UNIQUE INDEX request_run ON request (run) WHERE state < 2;

CREATE TABLE session (id TEXT PRIMARY KEY, user TEXT NOT NULL, agent TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO session VALUES('given','u-2','tag');

pragma user_version=1;
pragma application_id=1382902132;

COMMIT TRANSACTION;
