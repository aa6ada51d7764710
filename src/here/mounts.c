/* SPDX-License-Identifier: Apache-2.0 */
#include "here/mounts.h"
#include "base/fd.h"
#include "base/mem.h"
#include "here/plan.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { MOUNTS_TEXT_MAX = 16 << 20, MOUNTS_WORDS = 5 };

struct mounts_one {
    const char *device, *root, *at, *type; /* in the text */
    uint64_t id;
};

/* Blanks and backslashes are octal. */
static void mounts_unescape(char *text)
{
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (c[0] == '\\' && c[1] && c[2] && c[3]) {
            *to++ = (char)((c[1] - '0') * 64 + (c[2] - '0') * 8 + (c[3] - '0'));
            c += 3;
        } else {
            *to++ = *c;
        }
    }
    *to = '\0';
}

/* "ID PARENT DEVICE ROOT AT OPTIONS [FIELDS] - TYPE SOURCE OPTIONS" */
static bool mounts_parse(char *line, struct mounts_one *ret_one)
{
    char *words[MOUNTS_WORDS], *rest = line, *type = strstr(line, " - ");
    if (!type)
        return false;
    *type = '\0';
    type += strlen(" - ");
    type[strcspn(type, " ")] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (!(words[i] = strsep(&rest, " ")))
            return false;
    *ret_one = (struct mounts_one){words[2], words[3], words[4], type, 0};
    mounts_unescape(words[3]);
    mounts_unescape(words[4]);
    return str_to_u64(str_of(words[0]), &ret_one->id) == 0;
}

int mounts_read(struct mounts *m)
{
    *m = (struct mounts){.text = BUF_INIT(MOUNTS_TEXT_MAX)};
    int r = fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &m->text);
    r = r < 0 ? r : buf_append_char(&m->text, '\0');
    char *rest = r < 0 ? NULL : buf_data(&m->text), *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        struct mounts_one one;
        if (!mounts_parse(line, &one))
            continue;
        m->all = mem_realloc(m->all, (m->n + 1) * sizeof(one));
        m->all[m->n++] = one;
    }
    return r < 0 ? r : 0;
}

void mounts_fini(struct mounts *m)
{
    mem_free(m->all);
    buf_fini(&m->text);
}

/* 0: it can't be reached. */
static uint64_t mounts_id(const char *path)
{
    struct statx st;
    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &st) < 0 ? 0 : st.stx_mnt_id;
}

static const struct mounts_one *mounts_find(const struct mounts *m, uint64_t id)
{
    for (size_t i = 0; i < m->n; i++)
        if (id && m->all[i].id == id)
            return &m->all[i];
    return NULL;
}

/* What of `path` is below `directory`, with its slash; "" for the same. */
static const char *mounts_rest(const char *path, const char *directory)
{
    return path[1] ? path + (directory[1] ? strlen(directory) : 0) : "";
}

int mounts_aliases(const struct mounts *m, const char *path, mounts_found found, void *ctx)
{
    const struct mounts_one *own = mounts_find(m, mounts_id(path));
    int r = 0;
    if (!own || !plan_is_below(path, own->at))
        return 0;
    AUTO_FREE char *inner = mem_printf("%s%s", own->root[1] ? own->root : "", mounts_rest(path, own->at));
    const char *place = inner[0] ? inner : "/";
    for (size_t i = 0; r == 0 && i < m->n; i++) {
        const struct mounts_one *o = &m->all[i];
        const bool is_above = plan_is_below(place, o->root), is_below = plan_is_below(o->root, place);
        if (o == own || strcmp(o->device, own->device) != 0 || (!is_above && !is_below))
            continue;
        AUTO_FREE char *alias =
            mem_printf("%s%s", is_above && !o->at[1] ? "" : o->at, is_above ? mounts_rest(place, o->root) : "");
        if (!plan_is_below(alias[0] ? alias : "/", path) && mounts_id(alias) == o->id)
            r = found(ctx, alias);
    }
    return r;
}

int mounts_procs(const struct mounts *m, mounts_found found, void *ctx)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < m->n; i++)
        if (strcmp(m->all[i].type, "proc") == 0 && !plan_is_below(m->all[i].at, "/proc") &&
            mounts_id(m->all[i].at) == m->all[i].id)
            r = found(ctx, m->all[i].at);
    return r;
}
