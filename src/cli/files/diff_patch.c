/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each side's files come as one archive, which the tar in there makes of a list of names. It is as hostile as the
 * sandbox: sizes and their sum are bounded, nothing is unpacked, and what is written is text in which names are quoted.
 */
#include "cli/files/diff_patch.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/exec.h"
#include "cli/files/libarchive.h"
#include "cli/files/patch.h"
#include "cli/print.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MADE_FOR_MS = 600000, LIST_MAX = 64 << 20, MESSAGE_MAX = 4096, FILES_MAX = 1000000 };
enum {
    DIFF_PATCH_FILE_MAX = 64 << 20,
    TREE_MAX = 512 << 20,
    DIFF_PATCH_MAX = 1 << 30,
    ARCHIVE_MAX = 2 * TREE_MAX,
    LOOK_MS = 50
};

/* ---- sides ---- */

static int diff_side_make(struct context *ctx, struct service *s, const char *text, struct diff_side *ret_side)
{
    AUTO_JSON json_t *sandbox = NULL;
    AUTO_JSON json_t *spec = json_pack("{s:s,s:i,s:b}", "template", text, "timeout_ms", MADE_FOR_MS, "internet", 0);
    if (!spec)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "names must be UTF-8");
    if (service_call(s, "POST", "/cove/v1/sandboxes", spec, "opening a snapshot", &sandbox) < 0)
        return -1;
    ret_side->is_made = service_id(ctx, sandbox, &ret_side->id) == 0;
    return ret_side->is_made ? 0 : -1;
}

int diff_side_open(struct context *ctx, struct service *s, const char *text, struct diff_side *ret_side)
{
    const bool may_be_id = *text == 'i' && str_is_of(str_of(text), "a-z0-9");
    if (may_be_id && service_resolve(s, text, &ret_side->id) == 0)
        return 0;
    if (may_be_id && ctx->err.code != ERR_NOT_FOUND && ctx->err.code != ERR_INVALID_ARGUMENT)
        return -1;
    ctx->err.code = ERR_OK;
    *ctx->hint = '\0';
    if (diff_side_make(ctx, s, text, ret_side) == 0)
        return 0;
    const struct context before = *ctx;
    if (ctx->err.code == ERR_NOT_FOUND && service_resolve(s, text, &ret_side->id) == 0)
        return 0;
    ctx->err = before.err;
    memcpy(ctx->hint, before.hint, sizeof(ctx->hint));
    return -1;
}

int diff_side_open_base(struct context *ctx, struct service *s, const char *of, struct diff_side *ret_side)
{
    AUTO_FREE char *target = service_target(of, "%s", "");
    AUTO_JSON json_t *sandbox = NULL;
    if (service_call(s, "GET", target, NULL, NULL, &sandbox) < 0)
        return -1;
    const char *base = json_string_value(json_object_get(sandbox, "template"));
    return base ? diff_side_make(ctx, s, base, ret_side)
                : err_set(&ctx->err, ERR_FAILED_PRECONDITION, "what %s was made from is no longer known", of);
}

void diff_side_close(struct context *ctx, struct diff_side *side)
{
    if (side->is_made)
        service_remove_aside(ctx, side->id); /* it ends by itself soon */
    mem_free(side->id);
}

/* ---- files of one side ---- */

struct patch_file {
    char *path; /* below the root */
    struct patch_side side;
    char *content; /* owned; the side's */
};

struct patch_tree {
    struct patch_file *all;
    size_t n, room;
    uint64_t bytes;
};

static void patch_tree_fini(struct patch_tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        mem_free(t->all[i].path);
        mem_free(t->all[i].content);
    }
    mem_free(t->all);
}

static bool is_of_git(const char *path)
{
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (strncmp(at, ".git", 4) == 0 && (at[4] == '/' || at[4] == '\0'))
            return true;
    return false;
}

/* The name of a line below the root; NULL: it is not, or of no interest. "": all of the root. */
static const char *name_below(const char *line, const char *root, bool is_old)
{
    const char *path = line + 2;
    const size_t n = strlen(path), below = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const bool is_dir = n > 0 && path[n - 1] == '/';
    if (line[0] == (is_old ? 'A' : 'D') || (is_dir && line[0] == 'M'))
        return NULL;
    if (is_dir && strncmp(path, root, n) == 0 && below >= n)
        return "";
    if (strncmp(path, root, below) != 0 || path[below] != '/')
        return NULL;
    return path + below + 1;
}

/* NUL behind each. A directory stands for all in it, so what is in one that was named is not named again. */
static void list_names(struct buf *b, const char *root, const char *const *lines, size_t n, bool is_old)
{
    const char *dir = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = name_below(lines[i], root, is_old);
        if (!name || (dir && strncmp(name, dir, strlen(dir)) == 0))
            continue;
        const bool is_dir = *name && name[strlen(name) - 1] == '/';
        if (!*name || is_dir)
            dir = name;
        if (!is_of_git(name))
            buf_append(b, *name ? name : ".", strlen(*name ? name : ".") + 1);
    }
}

static int take_content(struct context *ctx, struct archive *a, struct patch_file *f, uint64_t size)
{
    f->content = mem_alloc(size + 1);
    size_t done = 0;
    while (done < size) {
        la_ssize_t n = la()->archive_read_data(a, f->content + done, size - done);
        if (n <= 0)
            return err_set(&ctx->err, ERR_UNKNOWN, "tar's output in the sandbox is not an archive");
        done += (size_t)n;
    }
    f->side.content = str_n(f->content, size);
    return 0;
}

static int too_much(struct context *ctx)
{
    context_hint(ctx, "--path takes a part of it; 'cove cp' copies whole files");
    return err_set(&ctx->err, ERR_RESOURCE_EXHAUSTED,
                   "too much for a patch: a file of more than 64 MiB, or more than 512 MiB in all");
}

static int take_entry(struct context *ctx, struct archive *a, struct archive_entry *entry, struct patch_tree *t)
{
    const char *path = la()->archive_entry_pathname(entry), *link = la()->archive_entry_symlink(entry);
    const mode_t type = la()->archive_entry_filetype(entry);
    const int64_t size = la()->archive_entry_size(entry);
    while (path && path[0] == '.' && path[1] == '/')
        path += 2;
    if (!path || !*path || is_of_git(path) || type == AE_IFDIR)
        return 0;
    if ((type != AE_IFREG && type != AE_IFLNK) || (type == AE_IFLNK && !link)) {
        (void)fprintf(stderr, "cove diff: left out: a patch holds files and symbolic links alone\n");
        return 0;
    }
    if (type == AE_IFREG && (size < 0 || size > DIFF_PATCH_FILE_MAX || t->bytes + (uint64_t)size > TREE_MAX))
        return too_much(ctx);
    if (t->n == FILES_MAX)
        return err_set(&ctx->err, ERR_RESOURCE_EXHAUSTED, "more than a million files for one patch");
    if (t->n == t->room) {
        t->room = MAX(2 * t->room, (size_t)64);
        t->all = mem_realloc(t->all, t->room * sizeof(*t->all));
    }
    struct patch_file *f = &t->all[t->n++];
    *f = (struct patch_file){.path = mem_strdup(path),
                             .side = {.exists = true,
                                      .is_link = type == AE_IFLNK,
                                      .is_executable = la()->archive_entry_perm(entry) & S_IXUSR}};
    if (type == AE_IFREG) {
        t->bytes += (uint64_t)size;
        return take_content(ctx, a, f, (uint64_t)size);
    }
    f->content = mem_strdup(link);
    f->side.content = str_of(f->content);
    return 0;
}

static int take_archive(struct context *ctx, int fd, struct patch_tree *t)
{
    struct archive *a = la()->archive_read_new();
    struct archive_entry *entry;
    int r = 0, got = ARCHIVE_FATAL;
    if (la()->archive_read_support_format_tar(a) == ARCHIVE_OK &&
        la()->archive_read_support_format_gnutar(a) <= ARCHIVE_WARN)
        r = 0;
    if (la()->archive_read_open_fd(a, fd, 64 * 1024) == ARCHIVE_OK)
        while (r == 0 && (got = la()->archive_read_next_header(a, &entry)) >= ARCHIVE_WARN && got != ARCHIVE_EOF)
            r = take_entry(ctx, a, entry, t);
    if (r == 0 && got != ARCHIVE_EOF)
        r = err_set(&ctx->err, ERR_UNKNOWN, "tar's output in the sandbox is not an archive");
    (void)la()->archive_read_free(a);
    return r;
}

struct patch_watch {
    struct context *ctx;
    int archive;
};

/* What is in there writes as much as it likes, into memory of ours. */
static int patch_watch(void *watch)
{
    const struct patch_watch *w = watch;
    struct stat st;
    return fstat(w->archive, &st) == 0 && st.st_size > ARCHIVE_MAX ? too_much(w->ctx) : 0;
}

/* Runs tar there: the names go in by a file without a name, the archive comes out by another. */
static int diff_patch_fetch(struct context *ctx, const char *id, const char *root, struct str names,
                            struct patch_tree *t)
{
    AUTO_CLOSE int in = child_input(names), out = memfd_create("archive", MFD_CLOEXEC);
    AUTO_BUF struct buf message = BUF_INIT(MESSAGE_MAX);
    const struct exec_request request = {
        .id = id,
        .argv = CHILD_ARGV("tar", "-C", root, "-cf", "-", "--hard-dereference", "--null", "-T", "-"),
        .user = "root",
        .has_stdin = true};
    struct patch_watch watch = {ctx, out};
    const struct exec_io io = {.stdin_fd = in,
                               .stdout_fd = out,
                               .stderr_fd = -1,
                               .captured_stderr = &message,
                               .forwards_signals = true,
                               .tick = patch_watch,
                               .tick_ctx = &watch,
                               .tick_ms = LOOK_MS};
    struct exec_result result = {0};
    if (names.n == 0)
        return 0;
    if (in < 0 || out < 0)
        return err_errno(&ctx->err, errno, "hold what is fetched");
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || exec_in_sandbox(ctx, s, &request, &io, &result) < 0)
        return -1;
    if (exec_check(ctx, &result, buf_str(&message)) < 0)
        return -1;
    if (lseek(out, 0, SEEK_SET) < 0)
        return err_errno(&ctx->err, errno, "hold what is fetched");
    return take_archive(ctx, out, t);
}

/* ---- both ---- */

static int compare_files(const void *a, const void *b)
{
    const struct patch_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static int print_trees(struct context *ctx, const struct patch_tree *a, const struct patch_tree *b)
{
    static const struct patch_side none = {0};
    for (size_t i = 0, j = 0; i < a->n || j < b->n;) {
        AUTO_BUF struct buf text = BUF_INIT(DIFF_PATCH_MAX);
        const int order = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->all[i].path, b->all[j].path);
        const char *path = order <= 0 ? a->all[i].path : b->all[j].path;
        patch_append(&text, str_of(path), order <= 0 ? &a->all[i].side : &none, order >= 0 ? &b->all[j].side : &none);
        if (buf_error(&text))
            return err_set(&ctx->err, ERR_RESOURCE_EXHAUSTED, "the patch of one file is larger than 1 GiB");
        print_lines(buf_str(&text));
        i += order <= 0;
        j += order >= 0;
    }
    return 0;
}

int diff_patch_print(struct context *ctx, const struct diff_side *a, const struct diff_side *b, const char *root,
                     const char *const *lines, size_t n)
{
    const struct diff_side *sides[] = {a, b};
    struct patch_tree trees[2] = {{0}};
    int r = 0;
    for (size_t i = 0; i < 2 && r == 0; i++) {
        AUTO_BUF struct buf names = BUF_INIT(LIST_MAX);
        list_names(&names, root, lines, n, i == 0);
        r = buf_error(&names) ? err_set(&ctx->err, ERR_RESOURCE_EXHAUSTED, "too many names for one patch")
                              : diff_patch_fetch(ctx, sides[i]->id, root, buf_str(&names), &trees[i]);
        if (r == 0 && trees[i].n)
            qsort(trees[i].all, trees[i].n, sizeof(*trees[i].all), compare_files);
    }
    if (r == 0)
        r = print_trees(ctx, &trees[0], &trees[1]);
    patch_tree_fini(&trees[0]);
    patch_tree_fini(&trees[1]);
    return r;
}
