/* SPDX-License-Identifier: Apache-2.0 */
#include "store/meta.h"
#include "store/db.h"

int meta_get(struct store *s, const char *key, struct buf *ret_value, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_META_GET, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, key);
    int r = db_row(s, q, "read a setting", err);
    if (r == 1 && buf_append_str(ret_value, db_str(q, 0)) < 0)
        r = err_errno(err, buf_error(ret_value), "store %s: setting %s", store_path(s), key);
    db_done(q);
    return r;
}

int meta_put(struct store *s, const char *key, struct str value, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_META_PUT, err)))
        return -1;
    db_bind_text(q, 1, key);
    db_bind_blob(q, 2, value);
    return db_run(s, q, "write a setting", 0, err);
}

int meta_delete(struct store *s, const char *key, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_META_DELETE, err)))
        return -1;
    db_bind_text(q, 1, key);
    return db_run(s, q, "delete a setting", 0, err);
}
