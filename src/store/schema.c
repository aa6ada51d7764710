/* SPDX-License-Identifier: Apache-2.0 */
#include "store/schema.h"
#include "store/db.h"

#include <sqlite3.h>
#include <stdio.h>

static const char step_1[] =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;"

    "CREATE TABLE sandboxes ("
    " id TEXT PRIMARY KEY, state INTEGER NOT NULL, tier TEXT NOT NULL,"
    " template_id TEXT NOT NULL, template_alias TEXT NOT NULL, layer_digest TEXT NOT NULL,"
    " created_at INTEGER NOT NULL, started_at INTEGER NOT NULL, end_at INTEGER NOT NULL, timeout INTEGER NOT NULL,"
    " cpu_milli INTEGER NOT NULL, memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL,"
    " envd_token TEXT NOT NULL, traffic_token TEXT NOT NULL,"
    " on_timeout INTEGER NOT NULL, auto_resume INTEGER NOT NULL, secure INTEGER NOT NULL, allow_internet INTEGER NOT NULL,"
    " metadata TEXT NOT NULL, envs TEXT NOT NULL, network TEXT NOT NULL, extra TEXT NOT NULL,"
    " ended_at INTEGER NOT NULL, end_cause TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX sandboxes_ended ON sandboxes (ended_at, created_at);"

    /* The head of a log: its number (in each event's key; never given out again), where its chain ends and where it
     * begins. */
    "CREATE TABLE event_heads ("
    " log INTEGER PRIMARY KEY AUTOINCREMENT, sandbox TEXT NOT NULL UNIQUE, last_seq INTEGER NOT NULL, last_hash BLOB NOT NULL,"
    " base_seq INTEGER NOT NULL, base_hash BLOB NOT NULL) STRICT;"
    "CREATE TABLE events ("
    " log INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL,"
    " grade TEXT NOT NULL, actor TEXT NOT NULL, cause INTEGER NOT NULL, data TEXT NOT NULL, hash BLOB NOT NULL,"
    " PRIMARY KEY (log, seq)) STRICT, WITHOUT ROWID;"

    "CREATE TABLE artefacts ("
    " artefact INTEGER PRIMARY KEY, sandbox TEXT NOT NULL, seq INTEGER NOT NULL, part INTEGER NOT NULL,"
    " stored INTEGER NOT NULL, dropped INTEGER NOT NULL, UNIQUE (sandbox, seq, part)) STRICT;"
    "CREATE TABLE artefact_chunks ("
    " artefact INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (artefact, start)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE artefact_totals (sandbox TEXT PRIMARY KEY, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

/* Templates that were built and snapshots (template/template.h), what was said while they were built, and what of it
 * can be used again. */
static const char step_2[] =
    "CREATE TABLE templates ("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL, public INTEGER NOT NULL, created_at INTEGER NOT NULL,"
    " updated_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE template_builds ("
    " id TEXT PRIMARY KEY, template TEXT NOT NULL, snapshot INTEGER NOT NULL, status INTEGER NOT NULL, layer TEXT NOT NULL,"
    " source TEXT NOT NULL, cpu_milli INTEGER NOT NULL, memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL,"
    " size_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, started_at INTEGER NOT NULL, finished_at INTEGER NOT NULL,"
    " start_cmd TEXT NOT NULL, ready_cmd TEXT NOT NULL, workdir TEXT NOT NULL, user TEXT NOT NULL, envs BLOB NOT NULL,"
    " reason TEXT NOT NULL, reason_step TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE template_tags ("
    " template TEXT NOT NULL, tag TEXT NOT NULL, build TEXT NOT NULL, created_at INTEGER NOT NULL,"
    " PRIMARY KEY (template, tag)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE template_uses ("
    " template TEXT PRIMARY KEY, count INTEGER NOT NULL, last_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE template_logs ("
    " build TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, level INTEGER NOT NULL, step TEXT NOT NULL,"
    " message TEXT NOT NULL, PRIMARY KEY (build, seq)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE build_cache ("
    " key TEXT PRIMARY KEY, layer TEXT NOT NULL, result TEXT NOT NULL, bytes INTEGER NOT NULL, made_at INTEGER NOT NULL,"
    " used_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

static const char step_3[] =
    "CREATE TABLE volumes ("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, token TEXT NOT NULL, limit_bytes INTEGER NOT NULL,"
    " created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE template_spares (template TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

static const char step_4[] = "ALTER TABLE sandboxes RENAME COLUMN envd_token TO access_token;";

/* The feed: which event of which log has which cursor, n of them in a row. Events of an older Cove have no cursor. */
static const char step_5[] =
    "ALTER TABLE events ADD COLUMN cursor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE event_heads ADD COLUMN last_cursor INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE feed (cursor INTEGER PRIMARY KEY, log INTEGER NOT NULL, seq INTEGER NOT NULL, n INTEGER NOT NULL) STRICT;";

/* What is kept of long outputs is in files (store/artefact.h). */
static const char step_6[] =
    "DROP TABLE artefact_chunks; DROP TABLE artefact_totals; DROP TABLE artefacts;"
    "CREATE TABLE artefacts ("
    " sandbox TEXT NOT NULL, seq INTEGER NOT NULL, part INTEGER NOT NULL, bytes INTEGER NOT NULL, dropped INTEGER NOT NULL,"
    " digest TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (sandbox, seq, part)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX artefacts_digest ON artefacts (digest);";

/* Whose things are: of the default tenant, all those from before. Names of volumes are unique per tenant, so their
 * table is made anew. */
static const char step_7[] =
    "CREATE TABLE tenants ("
    " tenant INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL) STRICT;"
    "INSERT INTO tenants (tenant, name, created_at) VALUES (0, 'default', 0);"
    "CREATE TABLE tenant_limits ("
    " tenant INTEGER NOT NULL, what TEXT NOT NULL, most INTEGER NOT NULL, PRIMARY KEY (tenant, what)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE keys ("
    " id TEXT PRIMARY KEY, tenant INTEGER NOT NULL, name TEXT NOT NULL, scope INTEGER NOT NULL, sandbox TEXT NOT NULL,"
    " hash BLOB NOT NULL UNIQUE, old_hash BLOB NOT NULL, old_until INTEGER NOT NULL, created_at INTEGER NOT NULL,"
    " expires_at INTEGER NOT NULL, UNIQUE (tenant, name)) STRICT, WITHOUT ROWID;"
    "ALTER TABLE sandboxes ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE templates ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE volumes RENAME TO volumes_6;"
    "CREATE TABLE volumes ("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL, token TEXT NOT NULL, limit_bytes INTEGER NOT NULL,"
    " created_at INTEGER NOT NULL, tenant INTEGER NOT NULL, UNIQUE (tenant, name)) STRICT, WITHOUT ROWID;"
    "INSERT INTO volumes SELECT id, name, token, limit_bytes, created_at, 0 FROM volumes_6;"
    "DROP TABLE volumes_6;"
    "CREATE TABLE volume_owners (volume TEXT PRIMARY KEY, tenant INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

/* The lives of sandboxes are read without the rest; the list is that of sql.c. */
static const char step_8[] =
    "CREATE INDEX events_life ON events (cursor) WHERE kind IN (" LIFE_KINDS ");"
    "CREATE TABLE webhooks ("
    " id TEXT PRIMARY KEY, tenant INTEGER NOT NULL, cursor INTEGER NOT NULL, config TEXT NOT NULL) STRICT, WITHOUT ROWID;";

/* A snapshot keeps the boundary of its sandbox. */
static const char step_9[] = "ALTER TABLE template_builds ADD COLUMN tier TEXT NOT NULL DEFAULT '';"
                             "UPDATE template_builds SET tier = 'container' WHERE snapshot;";

/* How many sandboxes there may be of what is kept ready. */
static const char step_10[] = "ALTER TABLE template_spares ADD COLUMN most INTEGER NOT NULL DEFAULT 0;";

/* A snapshot may have its sandbox's memory beside its layer. */
static const char step_11[] = "ALTER TABLE template_builds ADD COLUMN memory INTEGER NOT NULL DEFAULT 0;";

/* Whether a kind is in a range is asked of each event; a list of kinds cost as much as all else of an append. */
static const char step_12[] = "DROP INDEX events_life; CREATE INDEX events_life ON events (cursor) WHERE " LIFE_RANGE;

/* Whose have ended is counted. */
static const char step_13[] = "DROP INDEX sandboxes_ended;"
                              "CREATE INDEX sandboxes_ended ON sandboxes (ended_at, tenant, created_at);";

/* What an image says it is to run. */
static const char step_14[] = "ALTER TABLE template_builds ADD COLUMN image TEXT NOT NULL DEFAULT '';";

const char *const schema_steps[] = {step_1, step_2, step_3,  step_4,  step_5,  step_6,  step_7,
                                    step_8, step_9, step_10, step_11, step_12, step_13, step_14};
const size_t schema_n_steps = ARRAY_SIZE(schema_steps);

static int schema_number_of(sqlite3 *db, const char *path, const char *sql, int64_t *ret_n, struct err *err)
{
    sqlite3_stmt *q = NULL;
    errno = 0;
    int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        *ret_n = sqlite3_column_int64(q, 0);
    (void)sqlite3_finalize(q);
    if (rc == SQLITE_ROW)
        return 0;
    return db_set_error(db, path, "read its header", err);
}

int schema_check(sqlite3 *db, const char *path, size_t n_steps, size_t *ret_version, struct err *err)
{
    int64_t version = 0, application = 0, objects = 0;
    if (schema_number_of(db, path, "PRAGMA user_version", &version, err) < 0 ||
        schema_number_of(db, path, "PRAGMA application_id", &application, err) < 0 ||
        schema_number_of(db, path, "SELECT count(*) FROM sqlite_schema", &objects, err) < 0)
        return -1;
    bool empty = version == 0 && application == 0 && objects == 0;
    if (!empty && (application != SCHEMA_APPLICATION_ID || version <= 0))
        return err_set(err, ERR_DATA_LOSS,
                       "store %s: this is another program's database; move it away, or choose another path", path);
    if ((uint64_t)version > n_steps)
        return err_set(
            err, ERR_FAILED_PRECONDITION,
            "store %s: written by a newer Cove (format %lld, this one knows %zu); start that version, or move the "
            "file away to start empty",
            path, (long long)version, n_steps);
    *ret_version = (size_t)version;
    return 0;
}

int schema_apply(sqlite3 *db, const char *path, const char *const *steps, size_t n_steps, size_t version,
                 struct err *err)
{
    char mark[96];
    (void)snprintf(mark, sizeof(mark), "PRAGMA application_id = %d; PRAGMA user_version = %zu; COMMIT",
                   (int)SCHEMA_APPLICATION_ID, n_steps);
    if (version == n_steps)
        return 0;
    errno = 0;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (size_t v = version; rc == SQLITE_OK && v < n_steps; v++)
        rc = sqlite3_exec(db, steps[v], NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, mark, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    (void)db_set_error(db, path, "bring its tables up to date", err);
    if (!sqlite3_get_autocommit(db))
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}
