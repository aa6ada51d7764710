/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sql.h"

#define SQL_TEXT(name, text) [name] = text,
const char *const sql_texts[SQL_MAX] = {SQL_STATEMENTS(SQL_TEXT)};
