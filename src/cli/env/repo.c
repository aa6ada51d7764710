/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/repo.h"
#include "base/child.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGS_MAX = 256, REPO_TEXT_MAX = 1 << 20, REPO_COMPLAINT_MAX = 4096, OBJECT = 40, NAMES_MAX = 8 };
enum { CPU_SECONDS = 900, REFUSED_MAX = 200 };

#define OURS_PREFIX "cove-in-"

/* Of git 2.31 and later, in any repository. */
static const char *const off[] = {
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.askPass=",
    "core.alternateRefsCommand=true",
    "core.protectNTFS=true",
    "core.protectHFS=true",
    "core.quotePath=true",
    "credential.helper=",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "commit.gpgSign=false",
    "gpg.program=false",
    "log.showSignature=false",
    "merge.verifySignatures=false",
    "merge.autoStash=false",
    "rerere.enabled=false",
    "maintenance.auto=false",
    "gc.auto=0",
    "transfer.fsckObjects=true",
    "fetch.fsckObjects=true",
    "fetch.unpackLimit=1",
    "color.ui=false",
};

static const char *const passed_on[] = {"PATH", "TMPDIR", "TZ", "SUDO_UID", NULL};

static const char *const settings[] = {
    "LC_ALL=C.UTF-8",          "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",     "GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",    "GIT_PAGER=cat",
    "GIT_ALLOW_PROTOCOL=file", "GIT_EDITOR=false",      "HOME=/nonexistent",           "GIT_NO_LAZY_FETCH=1",
};

struct str repo_line(const struct buf *text)
{
    struct str s = buf_str(text);
    while (s.p && s.n && strchr(" \t\r\n", s.p[s.n - 1]))
        s.n--;
    return s;
}

void repo_refuse_nothing(struct repo *r)
{
    MEM_FREE(r->refused, r->refused_path);
    r->refused = r->refused_path = NULL;
}

static char *repo_escape(struct str text)
{
    AUTO_BUF struct buf shown = BUF_INIT(4 * REFUSED_MAX);
    terminal_escape(&shown, str_n(text.p, MIN(text.n, (size_t)REFUSED_MAX)));
    return mem_strndup(buf_len(&shown) ? buf_data(&shown) : "", buf_len(&shown));
}

int repo_refuse(struct repo *r, struct str path, const char *why)
{
    char *escaped = repo_escape(str_of(why));
    repo_refuse_nothing(r);
    r->refused = escaped;
    r->refused_path = path.n ? repo_escape(path) : NULL;
    return err_set(&r->ctx->err, ERR_PERMISSION_DENIED, "refused: %s%s%s", path.n ? r->refused_path : "",
                   path.n ? ": " : "", why);
}

/* ---- git ---- */

static size_t repo_argv(const struct repo *r, enum repo_side side, const char *const *args, char **argv)
{
    size_t n = 0;
    argv[n++] = mem_strdup("git");
    for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
        argv[n++] = mem_strdup("-c");
        argv[n++] = mem_strdup(off[i]);
    }
    for (size_t i = 0; side == REPO_THEIRS && i < r->n_drivers && n < ARGS_MAX - 32; i++)
        argv[n++] = mem_strdup(r->drivers[i]);
    if (side == REPO_OURS) {
        argv[n++] = mem_printf("--git-dir=%s", r->ours);
    } else if (r->git) {
        argv[n++] = mem_printf("--git-dir=%s", r->git);
        argv[n++] = mem_printf("--work-tree=%s", r->top);
    }
    while (*args && n < ARGS_MAX - 1)
        argv[n++] = mem_strdup(*args++);
    argv[n] = NULL;
    return n;
}

static void repo_environment(const struct repo *r, char **env)
{
    size_t n = 0;
    for (size_t i = 0; passed_on[i]; i++)
        if (getenv(passed_on[i]))
            env[n++] = mem_printf("%s=%s", passed_on[i], getenv(passed_on[i]));
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
        env[n++] = mem_strdup(settings[i]);
    for (int i = 0; r->name && i < 2; i++) {
        env[n++] = mem_printf("GIT_%s_NAME=%s", i ? "AUTHOR" : "COMMITTER", r->name);
        env[n++] = mem_printf("GIT_%s_EMAIL=%s", i ? "AUTHOR" : "COMMITTER", r->email);
    }
    env[n] = NULL;
}

/*
 * Who commits, and what runs programs. Asked with the person's own configuration too, reading of which runs nothing:
 * "KEY\nTEXT\0" each; of the person's, the last one counts. Attributes of files choose filters and merge drivers among
 * those that are configured. A filter of no command is none; a merge driver that fails leaves the conflict to the
 * person. Hooks of the configuration (git 2.54) are programs that do nothing.
 */
int repo_find_settings(struct repo *r)
{
    if (r->name)
        return 0;
    AUTO_BUF struct buf text = BUF_INIT(REPO_TEXT_MAX);
    struct str rest, key, value;
    r->name = mem_strdup("Cove");
    r->email = mem_strdup("cove@localhost");
    r->drivers = mem_alloc(ARGS_MAX * sizeof(*r->drivers));
    static const char asked[] =
        "^(user\\.(name|email)|filter\\..*\\.(clean|smudge|process|required)|merge\\..*\\.driver|"
        "hook\\..*\\.command)$";
    int status = child_ask("git", CHILD_ARGV("git", "--git-dir", r->git, "config", "-z", "--get-regexp", asked), &text);
    if (status < 0 || status > 1) /* 1: there is none of all that */
        return err_set(&r->ctx->err, ERR_FAILED_PRECONDITION, "git can't read the configuration of %s", r->top);
    rest = buf_str(&text);
    while (rest.n && str_split(&rest, '\0', &value)) {
        if (!str_split(&value, '\n', &key) || (str_starts(key, STR("user.")) && !value.n))
            continue;
        if (str_starts(key, STR("user."))) {
            char **what = str_eqc(key, "user.name") ? &r->name : &r->email;
            mem_free(*what);
            *what = mem_strndup(value.p, value.n);
        } else if (str_find_char(key, '=') >= 0) { /* git -c takes what is before it for the key */
            return err_set(&r->ctx->err, ERR_FAILED_PRECONDITION,
                           "%s: the configuration has '%.*s', which can't be switched off: a name without '=' can",
                           r->top, STR_ARG_MAX(key, 100U));
        } else if (r->n_drivers + 2 > ARGS_MAX / 2) {
            return err_set(&r->ctx->err, ERR_RESOURCE_EXHAUSTED, "%s is configured with too many filters", r->top);
        } else {
            r->drivers[r->n_drivers++] = mem_strdup("-c");
            r->drivers[r->n_drivers++] =
                mem_printf("%.*s=%s", STR_ARG(key),
                           str_ends(key, STR(".command"))                                     ? "true"
                           : str_ends(key, STR(".required")) || str_ends(key, STR(".driver")) ? "false"
                                                                                              : "");
        }
    }
    return 0;
}

/* Whether it matters to this command who commits, or which drivers there are: no driver is any of ours. */
static bool repo_needs_settings(enum repo_side side, const char *word)
{
    return side == REPO_OURS
               ? strcmp(word, "notes") == 0
               : strcmp(word, "rev-parse") != 0 && strcmp(word, "rev-list") != 0 && strcmp(word, "merge-base") != 0;
}

static const char *repo_word(const char *const *args)
{
    while (**args == '-') /* "-C DIRECTORY", "-c KEY=VALUE", "--work-tree=DIRECTORY" */
        args += args[0][1] == '-' ? 1 : 2;
    return *args;
}

/* Packs may be made to take for ever, and to hold objects larger than this machine's memory. */
static void repo_limit(const struct repo *r, const char *word)
{
    const rlim_t seconds = r->cpu_seconds ? r->cpu_seconds : CPU_SECONDS;
    const bool indexes = strcmp(word, "index-pack") == 0;
    const rlim_t half = (rlim_t)sysconf(_SC_PHYS_PAGES) * (rlim_t)sysconf(_SC_PAGE_SIZE) / 2;
    (void)setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds + 1});
    if (indexes)
        (void)setrlimit(RLIMIT_DATA, &(struct rlimit){half, half});
    if (indexes || strcmp(word, "pack-objects") == 0) /* what it writes nobody would take; others come to their end */
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
}

pid_t repo_start(struct repo *r, enum repo_side side, int in, int out, int err, const char *const *args)
{
    if (r->git && repo_needs_settings(side, args[0]) && repo_find_settings(r) < 0)
        return -1;
    char *argv[ARGS_MAX], *env[64];
    AUTO_CLOSE int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    size_t n = repo_argv(r, side, args, argv);
    repo_environment(r, env);
    pid_t pid = fork();
    if (pid == 0) {
        child_unblock();
        (void)signal(SIGPIPE, SIG_DFL);
        repo_limit(r, repo_word(args));
        if ((!r->top || chdir(r->top) == 0) && dup2(in < 0 ? nothing : in, 0) == 0 &&
            dup2(out < 0 ? nothing : out, 1) == 1 && dup2(err < 0 ? nothing : err, 2) == 2)
            (void)execvpe("git", argv, env);
        _exit(127);
    }
    if (pid < 0)
        (void)err_errno(&r->ctx->err, errno, "start git");
    for (size_t i = 0; i < n; i++)
        mem_free(argv[i]);
    for (size_t i = 0; env[i]; i++)
        mem_free(env[i]);
    return pid;
}

int repo_wait(struct repo *r, pid_t pid, const char *what, struct str complaint)
{
    int status = child_wait(pid);
    if (status == 0)
        return 0;
    if (status == CHILD_NO_PROGRAM)
        return err_set(&r->ctx->err, ERR_FAILED_PRECONDITION, "there is no git on this machine");
    if (status == CHILD_SIGNAL + SIGXCPU)
        return err_set(&r->ctx->err, ERR_RESOURCE_EXHAUSTED, "git %s takes too long", what);
    const struct str why = complaint.n ? complaint : STR("it failed");
    return err_set(&r->ctx->err, ERR_UNKNOWN, "git %s: %.*s", what, STR_ARG_MAX(why, 190));
}

int repo_complaint(size_t most)
{
    AUTO_CLOSE int fd = memfd_create("complaint", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 || ftruncate(fd, (off_t)most) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) < 0 ? -1 : TAKE_FD(fd);
}

void repo_complained(int fd, struct buf *complaint)
{
    char *room = buf_reserve(complaint, complaint->max);
    ssize_t got = room ? pread(fd, room, complaint->max, 0) : -1;
    buf_commit(complaint, got > 0 ? strnlen(room, (size_t)got) : 0);
}

int repo_git(struct repo *r, enum repo_side side, const struct repo_io *io, const char *const *args)
{
    const char *word = repo_word(args);
    AUTO_BUF struct buf complaint = BUF_INIT(REPO_COMPLAINT_MAX);
    AUTO_CLOSE int err = repo_complaint(REPO_COMPLAINT_MAX);
    int ends[2] = {-1, -1}, failed = 0;
    if (err < 0 || (io->text && pipe2(ends, O_CLOEXEC) < 0))
        return err_errno(&r->ctx->err, errno, "start git");
    pid_t pid = repo_start(r, side, io->in, io->text ? ends[1] : io->out, err, args);
    (void)fd_close(ends[1]);
    if (pid > 0 && io->text)
        failed = fd_read_all(ends[0], io->text);
    (void)fd_close(ends[0]); /* what it still has to say ends it */
    if (pid < 0)
        return -1;
    int ended = repo_wait(r, pid, word, STR_NULL);
    repo_complained(err, &complaint);
    if (failed == -ENOBUFS)
        return err_set(&r->ctx->err, ERR_RESOURCE_EXHAUSTED, "git %s: the output is too large", word);
    if (ended < 0 && r->ctx->err.code == ERR_UNKNOWN && buf_len(&complaint)) {
        struct str said = repo_line(&complaint);
        return err_set(&r->ctx->err, ERR_UNKNOWN, "git %s: %.*s", word, STR_ARG_MAX(said, 190));
    }
    return ended;
}

char *repo_commit(struct repo *r, enum repo_side side, const char *revision)
{
    AUTO_BUF struct buf text = BUF_INIT(256);
    const bool is_message = revision[0] == ':' && revision[1] == '/'; /* of a commit; all that follows is the text */
    AUTO_FREE char *commit = mem_printf("%s%s", revision, is_message ? "" : "^{commit}");
    if (REPO_ASK(r, side, &text, "rev-parse", "--verify", "--quiet", "--end-of-options", commit) < 0 ||
        repo_line(&text).n != OBJECT) {
        if (strcmp(revision, "HEAD") == 0)
            context_hint(r->ctx, "a copy is of a commit: 'git commit' makes the first");
        (void)err_set(&r->ctx->err, ERR_NOT_FOUND, "%s has no commit \"%.100s\"", r->top, revision);
        return NULL;
    }
    return mem_strndup(buf_data(&text), OBJECT);
}

int repo_file(struct repo *r, const char *commit, const char *path, struct buf *text)
{
    AUTO_BUF struct buf listed = BUF_INIT(4096);
    AUTO_FREE char *object = mem_printf("%s:%s", commit, path);
    if (REPO_ASK(r, REPO_OURS, &listed, "ls-tree", commit, "--", path) < 0)
        return -1;
    if (!str_starts(buf_str(&listed), STR("100")))
        return 0;
    return REPO_ASK(r, REPO_OURS, text, "cat-file", "blob", object) < 0 ? -1 : 1;
}

int repo_commits(struct repo *r, enum repo_side side, const struct repo_ref *refs, size_t n)
{
    AUTO_BUF struct buf text = BUF_INIT(NAMES_MAX * (OBJECT + 1));
    const char *args[NAMES_MAX + 2] = {"rev-parse"};
    char *revisions[NAMES_MAX];
    for (size_t i = 0; i < n; i++)
        args[i + 1] = revisions[i] = mem_printf("%s^{commit}", refs[i].name);
    int e = repo_git(r, side, &(struct repo_io){-1, -1, &text}, args);
    for (size_t i = 0; i < n; i++)
        mem_free(revisions[i]);
    if (e < 0 || buf_len(&text) != n * (OBJECT + 1))
        return -1;
    for (size_t i = 0; i < n; i++)
        *refs[i].commit = mem_strndup(buf_data(&text) + i * (OBJECT + 1), OBJECT);
    return 0;
}

char *repo_accepted(struct repo *r, const char *commit)
{
    AUTO_BUF struct buf text = BUF_INIT(256);
    if (r->head && strcmp(r->head, commit) == 0)
        return mem_strdup(commit);
    if (REPO_ASK(r, REPO_THEIRS, &text, "merge-base", "HEAD", commit) < 0 || repo_line(&text).n != OBJECT) {
        (void)err_set(&r->ctx->err, ERR_FAILED_PRECONDITION, "%.12s and HEAD have no commit in common", commit);
        return NULL;
    }
    return mem_strndup(buf_data(&text), OBJECT);
}

int repo_set_refs(struct repo *r, enum repo_side side, const char *lines)
{
    AUTO_CLOSE int list = child_input(str_of(lines));
    const char *const args[] = {"update-ref", "--stdin", NULL};
    if (list < 0)
        return err_errno(&r->ctx->err, list, "write refs");
    return repo_git(r, side, &(struct repo_io){list, -1, NULL}, args);
}

/* ---- the repository ---- */

static int repo_remove_one(const char *path, const struct stat *st UNUSED, int kind UNUSED, struct FTW *at UNUSED)
{
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

static void repo_remove(const char *directory)
{
    (void)nftw(directory, repo_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Its name without what follows "pack-<hash>". */
static char *repo_find_pack(struct repo *r, uint64_t objects)
{
    AUTO_FREE char *packs = mem_printf("%s/objects/pack", r->ours), *found = NULL;
    AUTO(dir_close) DIR *all = dir_open(AT_FDCWD, packs);
    size_t n = 0;
    for (const struct dirent *one; (one = dir_next(all));) {
        uint32_t head[3] = {0}; /* "PACK", version, number of objects */
        AUTO_CLOSE int fd =
            str_ends(str_of(one->d_name), STR(".pack")) ? openat(dirfd(all), one->d_name, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        n += read(fd, head, sizeof(head)) == sizeof(head) && be32toh(head[2]) == objects ? 1 : 2;
        mem_free(found);
        found = mem_strndup(one->d_name, strlen(one->d_name) - strlen(".pack"));
    }
    return n == 1 ? TAKE_PTR(found) : NULL;
}

char *repo_give_pack(struct repo *r, uint64_t objects)
{
    static const char *const parts[] = {"pack", "rev", "idx"}; /* git looks for the last one */
    AUTO_FREE char *pack = repo_find_pack(r, objects);
    AUTO_FREE char *from = mem_printf("%s/objects/pack/%s", r->ours, pack ? pack : ""),
                   *to = mem_printf("%s/objects/pack/%s", r->common, pack ? pack : "");
    AUTO_FREE char *keep = mem_printf("%s.keep", to);
    AUTO_CLOSE int fd = pack ? open(keep, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return NULL;
    const char *us = strrchr(r->ours, '/') + 1;
    bool is_there = fd_write_all(fd, us, strlen(us)) == 0;
    for (size_t i = 0; is_there && i < ARRAY_SIZE(parts); i++) {
        AUTO_FREE char *old = mem_printf("%s.%s", from, parts[i]), *new = mem_printf("%s.%s", to, parts[i]);
        is_there = link(old, new) == 0 || errno == EEXIST || (errno == ENOENT && i == 1);
    }
    if (!is_there) {
        (void)unlink(keep);
        return NULL;
    }
    return TAKE_PTR(keep);
}

static void repo_sweep_keeps(struct repo *r)
{
    AUTO_FREE char *packs = mem_printf("%s/objects/pack", r->common);
    AUTO(dir_close) DIR *all = dir_open(AT_FDCWD, packs);
    for (const struct dirent *one; (one = dir_next(all));) {
        AUTO_BUF struct buf text = BUF_INIT(64);
        if (!str_ends(str_of(one->d_name), STR(".keep")) || fd_read_file(dirfd(all), one->d_name, &text) < 0 ||
            !str_starts(buf_str(&text), STR(OURS_PREFIX)) || memchr(buf_data(&text), '/', buf_len(&text)))
            continue;
        AUTO_FREE char *maker = mem_printf("%s/%.*s", r->common, STR_ARG(buf_str(&text)));
        if (access(maker, F_OK) < 0)
            (void)unlinkat(dirfd(all), one->d_name, 0);
    }
}

int repo_sweep(struct repo *r)
{
    int removed = 0;
    AUTO(dir_close) DIR *all = dir_open(AT_FDCWD, r->common);
    for (const struct dirent *one; (one = dir_next(all));) {
        AUTO_FREE char *path = mem_printf("%s/%s", r->common, one->d_name);
        AUTO_CLOSE int fd = str_starts(str_of(one->d_name), STR(OURS_PREFIX))
                                ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                : -1;
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        repo_remove(path);
        removed++;
    }
    repo_sweep_keeps(r);
    return removed;
}

/* No `git init`: it would copy a template, which has hooks. */
static int repo_make_ours(struct repo *r)
{
    AUTO_FREE char *ours = mem_printf("%s/" OURS_PREFIX "XXXXXX", r->common),
                   *shallow = mem_printf("%s/shallow", r->common);
    AUTO_FREE char *objects = mem_printf("%s/objects\n", r->common);
    AUTO_BUF struct buf grafts = BUF_INIT(REPO_TEXT_MAX);
    if (!mkdtemp(ours))
        return err_errno(&r->ctx->err, errno, "make a directory in %s", r->common);
    r->ours = TAKE_PTR(ours);
    r->lock = open(r->ours, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int at = r->lock;
    int e = at < 0 || flock(at, LOCK_EX | LOCK_NB) < 0 || mkdirat(at, "refs", 0700) < 0 ||
                    mkdirat(at, "objects", 0700) < 0 || mkdirat(at, "objects/info", 0700) < 0 ||
                    mkdirat(at, "objects/pack", 0700) < 0
                ? -errno
                : fd_write_file(at, "HEAD", STR("ref: refs/heads/none\n"), 0600);
    if (e == 0)
        e = fd_write_file(
            at, "config", /* what is larger is binary: nobody reads it, and a patch of it takes its size */
            STR("[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tbigFileThreshold = 32m\n"), 0600);
    if (e == 0)
        e = fd_write_file(at, "objects/info/alternates", str_of(objects), 0600);
    if (e == 0 && fd_read_file(AT_FDCWD, shallow, &grafts) == 0)
        e = fd_write_file(at, "shallow", buf_str(&grafts), 0600);
    return e < 0 ? err_errno(&r->ctx->err, -e, "make a directory in %s", r->common) : 0;
}

/*
 * Whether the person's own git works in another account's repository: safe.directory of theirs, not the repository's.
 */
static bool repo_is_safe(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (dup2(nothing, 1) == 1 && dup2(nothing, 2) == 2)
            (void)execlp("git", "git", "-C", path, "rev-parse", (char *)NULL);
        _exit(CHILD_NO_PROGRAM);
    }
    return child_wait(pid) == 0;
}

/* args: git's, of which the first four are these, and `path` is the second. */
#define REPO_LOOK_AT(path) "-C", path, "-c", "safe.directory="

static int repo_look(struct repo *r, const char **args, struct buf *text)
{
    int failed = repo_git(r, REPO_THEIRS, &(struct repo_io){-1, -1, text}, args);
    if (failed == 0 || !strstr(r->ctx->err.msg, "dubious ownership") || !repo_is_safe(args[1]))
        return failed;
    args[3] = "safe.directory=*";
    return repo_git(r, REPO_THEIRS, &(struct repo_io){-1, -1, text}, args);
}

char *repo_top(struct context *ctx, const char *path)
{
    struct repo r = {.ctx = ctx, .lock = -1};
    AUTO_BUF struct buf text = BUF_INIT(PATH_MAX + 1);
    const char *args[] = {REPO_LOOK_AT(path), "rev-parse", "--path-format=absolute", "--show-toplevel", NULL};
    char *top = repo_look(&r, args, &text) < 0 ? NULL : mem_strndup(buf_data(&text), repo_line(&text).n);
    ctx->err.code = ERR_OK;
    return top;
}

int repo_open(struct context *ctx, const char *path, const struct repo_ref *refs, size_t n, struct repo *ret_repo)
{
    *ret_repo = (struct repo){.ctx = ctx, .lock = -1};
    struct repo *r = ret_repo;
    AUTO_BUF struct buf text = BUF_INIT(64 * 1024);
    const char *args[10 + NAMES_MAX + 1] = {REPO_LOOK_AT(path),    "rev-parse", "--path-format=absolute",
                                            "--show-toplevel",     "--git-dir", "--git-common-dir",
                                            "--show-object-format"};
    char *revisions[NAMES_MAX];
    struct str rest, line[4 + NAMES_MAX] = {0};
    size_t lines = 0;
    for (size_t i = 0; i < n; i++)
        args[10 + i] = revisions[i] = mem_printf("%s^{commit}", refs[i].name);
    int failed = repo_look(r, args, &text);
    for (size_t i = 0; i < n; i++)
        mem_free(revisions[i]);
    for (rest = repo_line(&text); lines < 4 + n && str_split(&rest, '\n', &line[lines]);)
        lines++;
    if (failed < 0 && strstr(ctx->err.msg, "not a git repository"))
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "%s is in no Git repository: 'git init' makes one", path);
    if (failed < 0 && strstr(ctx->err.msg, "must be run in a work tree"))
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "%s is in no working tree of a repository", path);
    if (failed < 0 && (n == 0 || lines < 4)) /* git stops at a name of which there is no commit */
        return -1;
    ctx->err.code = ERR_OK;
    if (lines < 4 || *line[0].p != '/' || *line[1].p != '/' || *line[2].p != '/')
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "%s: not a usable repository", path);
    if (!str_eqc(line[3], "sha1"))
        return err_set(&ctx->err, ERR_UNIMPLEMENTED, "repositories of SHA-256 are not supported");
    r->top = mem_strndup(line[0].p, line[0].n);
    r->common = mem_strndup(line[2].p, line[2].n);
    r->git = mem_strndup(line[1].p, line[1].n);
    for (size_t i = 0; failed == 0 && i < n; i++)
        *refs[i].commit = mem_strndup(line[4 + i].p, line[4 + i].n);
    return repo_make_ours(r);
}

void repo_fini(struct repo *r)
{
    if (r->ours)
        repo_remove(r->ours);
    (void)fd_close(r->lock);
    for (size_t i = 0; i < r->n_drivers; i++)
        mem_free(r->drivers[i]);
    repo_refuse_nothing(r);
    MEM_FREE(r->drivers, r->top, r->git, r->common, r->ours, r->head, r->name, r->email);
}
