/* SPDX-License-Identifier: Apache-2.0 */
#include "here/bwrap.h"
#include "base/fd.h"
#include "base/mem.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { ARGS_MAX = 9000, ARGS_BYTES_MAX = 4 << 20, FILTER_BYTES_MAX = 65535 * (int)sizeof(struct sock_filter) };

struct bwrap_reader {
    struct bwrap *b;
    struct err *err;
    char **argv; /* what is still to be read, NULL-terminated */
    size_t n_args;
    bool shares_network, was_all, is_version;
    int perms;        /* of the next one; -1 */
    const char *size; /* of the next one; NULL */
};

struct bwrap_option {
    const char *name;
    int (*take)(struct bwrap_reader *r, const struct bwrap_option *o, char **values);
    unsigned n_values;
    int kind;
    const char *values, *help; /* help NULL: not listed. For those that are refused: why */
};

static int bwrap_number(struct bwrap_reader *r, const struct bwrap_option *o, const char *text, uint64_t max,
                        uint64_t *ret)
{
    return str_to_u64(str_of(text), ret) < 0 || *ret > max
               ? err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.40s\" is no number that it takes", o->name, text)
               : 0;
}

static int bwrap_mode(struct bwrap_reader *r, const struct bwrap_option *o, const char *text, int *ret)
{
    char *end;
    const long mode = strtol(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end || mode > 07777)
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.40s\" is no octal mode", o->name, text);
    *ret = (int)mode;
    return 0;
}

/* ---- options, a function for each sort ---- */

static int bwrap_held(struct bwrap_reader *r UNUSED, const struct bwrap_option *o UNUSED, char **values UNUSED)
{
    return 0; /* it is so in any case */
}

static int bwrap_refuse(struct bwrap_reader *r, const struct bwrap_option *o, char **values UNUSED)
{
    return err_set(r->err, ERR_INVALID_ARGUMENT, "%s is not supported: %s", o->name, o->help);
}

static int bwrap_mount(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    struct bwrap *b = r->b;
    const size_t n = strlen(o->name);
    struct bwrap_op op = {
        .kind = (enum bwrap_kind)o->kind,
        .from = o->n_values == 2 ? values[0] : NULL,
        .to = values[o->n_values - 1],
        .perms = r->perms,
        .size = r->size,
        .may_be_absent = n > 4 && strcmp(o->name + n - 4, "-try") == 0,
        .fd = -1,
    };
    const bool has_perms = op.kind == BWRAP_TMPFS || op.kind == BWRAP_DIR || op.kind == BWRAP_FILE ||
                           op.kind == BWRAP_BIND_DATA || op.kind == BWRAP_RO_BIND_DATA;
    struct stat st;
    uint64_t number;
    if (op.to[0] != '/')
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.80s\" is no absolute path", o->name, op.to);
    if ((op.perms >= 0 && !has_perms) || (op.size && op.kind != BWRAP_TMPFS))
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: --perms and --size say nothing about it", o->name);
    if (op.kind == BWRAP_FILE || op.kind == BWRAP_BIND_DATA || op.kind == BWRAP_RO_BIND_DATA) {
        if (bwrap_number(r, o, op.from, INT32_MAX, &number) < 0)
            return -1;
        op.fd = (int)number;
    } else if (op.kind == BWRAP_CHMOD) {
        if (bwrap_mode(r, o, op.from, &op.perms) < 0)
            return -1;
    } else if (op.from && op.kind != BWRAP_SYMLINK && stat(op.from, &st) == 0) {
        b->has_unix_sockets |= S_ISSOCK(st.st_mode);
    }
    r->perms = -1;
    r->size = NULL;
    b->ops = mem_realloc(b->ops, (b->n + 1) * sizeof(op));
    b->ops[b->n++] = op;
    return 0;
}

static int bwrap_perms(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    return bwrap_mode(r, o, values[0], &r->perms);
}

static int bwrap_size(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    uint64_t bytes;
    if (bwrap_number(r, o, values[0], INT64_MAX, &bytes) < 0)
        return -1;
    r->size = values[0];
    return 0;
}

static int bwrap_env(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    if (o->n_values == 0 ? clearenv() : o->n_values == 1 ? unsetenv(values[0]) : setenv(values[0], values[1], 1))
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.40s\" is no name", o->name, o->n_values ? values[0] : "");
    return 0;
}

enum { TEXT_CHDIR, TEXT_ARGV0, TEXT_HOSTNAME };

static int bwrap_text(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    *(o->kind == TEXT_CHDIR ? &r->b->cwd : o->kind == TEXT_ARGV0 ? &r->b->argv0 : &r->b->hostname) = values[0];
    return 0;
}

enum { FLAG_ALL, FLAG_NET, FLAG_SHARE, FLAG_SESSION, FLAG_CGROUP, FLAG_PARENT, FLAG_VERSION };

static int bwrap_flag(struct bwrap_reader *r, const struct bwrap_option *o, char **values UNUSED)
{
    r->was_all |= o->kind == FLAG_ALL;
    r->shares_network |= o->kind == FLAG_SHARE;
    r->is_version |= o->kind == FLAG_VERSION;
    r->b->with_network &= o->kind != FLAG_ALL && o->kind != FLAG_NET;
    r->b->dies_with_parent |= o->kind == FLAG_PARENT;
    r->b->is_session |= o->kind == FLAG_SESSION;
    r->b->is_cgroup |= o->kind == FLAG_CGROUP || o->kind == FLAG_ALL;
    return 0;
}

static int bwrap_id(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    uint64_t id;
    if (bwrap_number(r, o, values[0], INT32_MAX, &id) < 0)
        return -1;
    if (id == 0)
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s 0 is not supported: no id in a box is root's", o->name);
    *(o->kind == 'u' ? &r->b->uid : &r->b->gid) = (long)id;
    return 0;
}

static int bwrap_filter_add(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    struct bwrap *b = r->b;
    struct buf program = BUF_INIT(FILTER_BYTES_MAX);
    uint64_t fd;
    if (bwrap_number(r, o, values[0], INT32_MAX, &fd) < 0)
        return -1;
    int e = fd_read_all((int)fd, &program);
    if (e < 0 || !buf_len(&program) || buf_len(&program) % sizeof(struct sock_filter))
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: descriptor %s holds no filter", o->name, values[0]);
    b->filters = mem_realloc(b->filters, (b->n_filters + 1) * sizeof(program));
    b->filters[b->n_filters++] = program;
    return 0;
}

/* Words that are separated by NUL, in the place of the option. */
static int bwrap_args(struct bwrap_reader *r, const struct bwrap_option *o, char **values)
{
    struct buf text = BUF_INIT(ARGS_BYTES_MAX);
    uint64_t fd;
    size_t n = 0, rest = 0, at = 0;
    if (bwrap_number(r, o, values[0], INT32_MAX, &fd) < 0)
        return -1;
    if (fd_read_all((int)fd, &text) < 0)
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: descriptor %s can't be read", o->name, values[0]);
    if (buf_len(&text) && buf_data(&text)[buf_len(&text) - 1] != '\0' && buf_append(&text, "", 1) < 0)
        return err_set(r->err, ERR_RESOURCE_EXHAUSTED, "%s: too long", o->name);
    for (size_t i = 0; i < buf_len(&text); i++)
        n += buf_data(&text)[i] == '\0';
    while (r->argv[rest])
        rest++;
    r->n_args += n;
    if (r->n_args > ARGS_MAX)
        return err_set(r->err, ERR_RESOURCE_EXHAUSTED, "%s: more than %d arguments", o->name, ARGS_MAX);
    char **all = mem_array(n + rest + 1, sizeof(*all));
    for (char *c = buf_take(&text); at < n; c += strlen(c) + 1)
        all[at++] = c;
    memcpy(all + n, r->argv, rest * sizeof(*all));
    r->argv = all;
    return 0;
}

static int bwrap_help(struct bwrap_reader *r, const struct bwrap_option *o, char **values);

static const struct bwrap_option bwrap_options[] = {
    {"--help", bwrap_help, 0, 0, "", "this text"},
    {"--version", bwrap_flag, 0, FLAG_VERSION, "", "the version"},
    {"--args", bwrap_args, 1, 0, "FD", "further arguments, separated by NUL"},
    {"--argv0", bwrap_text, 1, TEXT_ARGV0, "NAME", "the command's argv[0]"},
    {"--unshare-all", bwrap_flag, 0, FLAG_ALL, "", "new namespaces of all kinds"},
    {"--share-net", bwrap_flag, 0, FLAG_SHARE, "", "after --unshare-all: the machine's network"},
    {"--unshare-user", bwrap_held, 0, 0, "", "always so"},
    {"--unshare-user-try", bwrap_held, 0, 0, "", "always so"},
    {"--unshare-ipc", bwrap_held, 0, 0, "", "always so"},
    {"--unshare-pid", bwrap_held, 0, 0, "", "always so"},
    {"--unshare-net", bwrap_flag, 0, FLAG_NET, "", "a network namespace with nothing but its loopback"},
    {"--unshare-uts", bwrap_held, 0, 0, "", "always so"},
    {"--unshare-cgroup", bwrap_flag, 0, FLAG_CGROUP, "", "a new namespace of cgroups"},
    {"--unshare-cgroup-try", bwrap_flag, 0, FLAG_CGROUP, "", "the same"},
    {"--disable-userns", bwrap_held, 0, 0, "", "always so"},
    {"--assert-userns-disabled", bwrap_held, 0, 0, "", "always so"},
    {"--uid", bwrap_id, 1, 'u', "UID", "the command's user id, not 0"},
    {"--gid", bwrap_id, 1, 'g', "GID", "the command's group id, not 0"},
    {"--hostname", bwrap_text, 1, TEXT_HOSTNAME, "NAME", "the host's name inside"},
    {"--chdir", bwrap_text, 1, TEXT_CHDIR, "DIR", "the command's directory"},
    {"--clearenv", bwrap_env, 0, 0, "", "no variable of the caller's"},
    {"--setenv", bwrap_env, 2, 0, "VAR VALUE", "sets a variable"},
    {"--unsetenv", bwrap_env, 1, 0, "VAR", "removes a variable"},
    {"--sync-fd", bwrap_held, 1, 0, "FD", "stays open while the command runs"},
    {"--bind", bwrap_mount, 2, BWRAP_BIND, "SRC DEST", "shows SRC at DEST"},
    {"--bind-try", bwrap_mount, 2, BWRAP_BIND, "SRC DEST", "the same, if SRC is there"},
    {"--dev-bind", bwrap_mount, 2, BWRAP_DEV_BIND, "SRC DEST", "the same, and devices work"},
    {"--dev-bind-try", bwrap_mount, 2, BWRAP_DEV_BIND, "SRC DEST", "the same, if SRC is there"},
    {"--ro-bind", bwrap_mount, 2, BWRAP_RO_BIND, "SRC DEST", "shows SRC at DEST, read-only"},
    {"--ro-bind-try", bwrap_mount, 2, BWRAP_RO_BIND, "SRC DEST", "the same, if SRC is there"},
    {"--remount-ro", bwrap_mount, 1, BWRAP_REMOUNT_RO, "DEST", "makes what is mounted at DEST read-only"},
    {"--proc", bwrap_mount, 1, BWRAP_PROC, "DEST", "a new procfs"},
    {"--dev", bwrap_mount, 1, BWRAP_DEV, "DEST", "a new /dev"},
    {"--tmpfs", bwrap_mount, 1, BWRAP_TMPFS, "DEST", "a new tmpfs"},
    {"--mqueue", bwrap_mount, 1, BWRAP_MQUEUE, "DEST", "a new file system of message queues"},
    {"--dir", bwrap_mount, 1, BWRAP_DIR, "DEST", "a directory"},
    {"--file", bwrap_mount, 2, BWRAP_FILE, "FD DEST", "a file with what FD holds"},
    {"--bind-data", bwrap_mount, 2, BWRAP_BIND_DATA, "FD DEST", "the same, mounted over DEST"},
    {"--ro-bind-data", bwrap_mount, 2, BWRAP_RO_BIND_DATA, "FD DEST", "the same, read-only"},
    {"--symlink", bwrap_mount, 2, BWRAP_SYMLINK, "SRC DEST", "a link to SRC"},
    {"--chmod", bwrap_mount, 2, BWRAP_CHMOD, "OCTAL PATH", "changes a mode"},
    {"--perms", bwrap_perms, 1, 0, "OCTAL", "the mode of what the next option makes"},
    {"--size", bwrap_size, 1, 0, "BYTES", "how much the next --tmpfs can hold"},
    {"--seccomp", bwrap_filter_add, 1, 0, "FD", "a further filter on system calls"},
    {"--add-seccomp-fd", bwrap_filter_add, 1, 0, "FD", "the same"},
    {"--new-session", bwrap_flag, 0, FLAG_SESSION, "", "a new terminal session"},
    {"--die-with-parent", bwrap_flag, 0, FLAG_PARENT, "", "the command ends with the caller; with bwrap always"},
    {"--as-pid-1", bwrap_held, 0, 0, "", "taken; process 1 is the box's own"},
    {"--cap-drop", bwrap_held, 1, 0, "CAP", "always so, of all"},
    {"--cap-add", bwrap_refuse, 1, 0, NULL, "there is no capability in a box"},
    {"--userns", bwrap_refuse, 1, 0, NULL, "a box has namespaces of its own"},
    {"--userns2", bwrap_refuse, 1, 0, NULL, "a box has namespaces of its own"},
    {"--pidns", bwrap_refuse, 1, 0, NULL, "a box has namespaces of its own"},
    {"--exec-label", bwrap_refuse, 1, 0, NULL, "SELinux labels are not set"},
    {"--file-label", bwrap_refuse, 1, 0, NULL, "SELinux labels are not set"},
    {"--lock-file", bwrap_refuse, 1, 0, NULL, "nothing is locked"},
    {"--block-fd", bwrap_refuse, 1, 0, NULL, "the command starts at once"},
    {"--userns-block-fd", bwrap_refuse, 1, 0, NULL, "the command starts at once"},
    {"--info-fd", bwrap_refuse, 1, 0, NULL, "nothing is told about the box"},
    {"--json-status-fd", bwrap_refuse, 1, 0, NULL, "nothing is told about the box"},
    {"--bind-fd", bwrap_refuse, 2, 0, NULL, "sources are paths"},
    {"--ro-bind-fd", bwrap_refuse, 2, 0, NULL, "sources are paths"},
    {"--overlay-src", bwrap_refuse, 1, 0, NULL, "there are no overlays"},
    {"--overlay", bwrap_refuse, 3, 0, NULL, "there are no overlays"},
    {"--tmp-overlay", bwrap_refuse, 1, 0, NULL, "there are no overlays"},
    {"--ro-overlay", bwrap_refuse, 1, 0, NULL, "there are no overlays"},
};

static int bwrap_help(struct bwrap_reader *r UNUSED, const struct bwrap_option *o UNUSED, char **values UNUSED)
{
    (void)fputs("usage: bwrap [OPTIONS...] [--] COMMAND [ARGS...]\n\n", stdout);
    for (size_t i = 0; i < ARRAY_SIZE(bwrap_options); i++) {
        char option[40];
        (void)snprintf(option, sizeof(option), "%s %s", bwrap_options[i].name,
                       bwrap_options[i].values ? bwrap_options[i].values : "");
        if (bwrap_options[i].values)
            (void)printf("    %-28s %s\n", option, bwrap_options[i].help);
    }
    return 1;
}

static int bwrap_next(struct bwrap_reader *r)
{
    const char *name = *r->argv++;
    char *values[3];
    const struct bwrap_option *o = NULL;
    for (size_t i = 0; !o && i < ARRAY_SIZE(bwrap_options); i++)
        o = strcmp(bwrap_options[i].name, name) == 0 ? &bwrap_options[i] : NULL;
    if (!o)
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%.80s: there is no such option", name);
    for (unsigned i = 0; i < o->n_values; i++) {
        if (!*r->argv && o->take != bwrap_refuse)
            return err_set(r->err, ERR_INVALID_ARGUMENT, "%s wants %s", o->name, o->values);
        values[i] = *r->argv;
        r->argv += *r->argv != NULL;
    }
    return o->take(r, o, values);
}

int bwrap_parse(int argc, char **argv, struct bwrap *b, struct err *err)
{
    struct bwrap_reader r = {.b = b, .err = err, .argv = argv + 1, .n_args = (size_t)argc, .perms = -1};
    *b = (struct bwrap){.with_network = true, .uid = -1, .gid = -1};
    while (*r.argv && strncmp(*r.argv, "--", 2) == 0 && (*r.argv)[2]) {
        int e = bwrap_next(&r);
        if (e)
            return e;
    }
    r.argv += *r.argv && strcmp(*r.argv, "--") == 0;
    if (r.is_version)
        return puts("bubblewrap 0.11.0 (cove " COVE_VERSION ")") < 0 ? -1 : 1;
    if (r.shares_network && !r.was_all)
        return err_set(err, ERR_INVALID_ARGUMENT, "--share-net goes with --unshare-all only");
    if (!*r.argv)
        return err_set(err, ERR_INVALID_ARGUMENT, "which command?");
    if ((*r.argv)[0] == '-')
        return err_set(err, ERR_INVALID_ARGUMENT, "%.80s: there is no such option", *r.argv);
    if (b->cwd)
        (void)setenv("PWD", b->cwd, 1);
    b->with_network |= r.shares_network;
    b->has_unix_sockets |= b->with_network;
    b->command = r.argv;
    return 0;
}

int bwrap_filter(const struct bwrap *b)
{
    for (size_t i = 0; i < b->n_filters; i++) {
        struct sock_fprog program = {(unsigned short)(buf_len(&b->filters[i]) / sizeof(struct sock_filter)),
                                     (struct sock_filter *)(void *)buf_data(&b->filters[i])};
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
            return -errno;
    }
    return 0;
}
