/* SPDX-License-Identifier: Apache-2.0 */
/* How `cove audit export` writes an event of the feed, and how it finds in what it wrote where it was. */
#pragma once

#include "base/buf.h"
#include "base/json.h"

struct form {
    const char *name, *suffix; /* "jsonl"; of a file: ".jsonl" */
    /* One event or gap, without the end of the line: `line` as it came, `event` the same parsed. host: of syslog, "-"
     * unknown. */
    void (*write)(struct buf *b, const json_t *event, struct str line, const char *host);
    const json_t *(*find)(const json_t *object); /* what of a line's JSON has the cursor; NULL: not this form */
    const char *before;                          /* of that JSON, in the line; "": the line begins with it */
};

const struct form *form_find(const char *name);      /* NULL: there is none */
const struct form *form_of_file(const char *suffix); /* the same */
extern const char form_names[];                      /* for people */

/* The cursor of a line that it wrote; 0: it did not. */
uint64_t form_cursor(const struct form *form, struct str line);
