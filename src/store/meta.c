/* SPDX-License-Identifier: Apache-2.0 */
#include "store/meta.h"
#include "store/db.h"

int meta_get(struct store *s, const char *key, struct buf *ret_value, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_META_GET, err, DB(key));
    int r = q ? db_row(s, q, "read a setting", err) : -1;
    if (r == 1 && buf_append_str(ret_value, db_str(q, 0)) < 0)
        r = err_errno(err, buf_error(ret_value), "store %s: setting %s", store_path(s), key);
    db_done(q);
    return r;
}

int meta_put(struct store *s, const char *key, struct str value, struct err *err)
{
    return DB_DO(s, SQL_META_PUT, "write a setting", 0, err, DB(key), db_of_blob(value));
}

int meta_delete(struct store *s, const char *key, struct err *err)
{
    return DB_DO(s, SQL_META_DELETE, "delete a setting", 0, err, DB(key));
}
