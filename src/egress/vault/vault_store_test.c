/* SPDX-License-Identifier: Apache-2.0 */
/* The vault's files when the disk, other programs or the machine don't do as they should: what was there is there, or
 * it is said what is not. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/vault/vault_store.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    int dir_fd;
    struct err err;
};

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    (void)snprintf(f->path, sizeof(f->path), "/tmp/cove-vault-store-test-XXXXXX");
    if (!mkdtemp(f->path))
        return -1;
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = f;
    return 0;
}

static void clear(struct fixture *f)
{
    static const char *const files[] = {"vault.key",      "vault.json", "vault.key.new",
                                        "vault.json.new", "old.json",   "old.key"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        (void)unlinkat(f->dir_fd, files[i], 0);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    clear(f);
    (void)fd_close(f->dir_fd);
    int r = rmdir(f->path);
    mem_free(f);
    return r;
}

static struct vault *open_vault(struct fixture *f)
{
    struct vault *v = NULL;
    if (vault_open(f->dir_fd, &v, &f->err) < 0)
        fail_msg("%s", f->err.msg);
    return v;
}

static void set(struct fixture *f, const char *name, const char *value)
{
    struct vault *v = open_vault(f);
    assert_int_equal(vault_set(v, str_of(name), str_of(value), &f->err), 0);
    vault_close(v);
}

static bool has(const struct vault *v, const char *name, const char *value)
{
    struct str got;
    return vault_get(v, str_of(name), &got) && str_eqc(got, value);
}

/* It can't be opened, for this reason, and every file is what it was. */
static void assert_refused(struct fixture *f, enum err_code code, const char *text)
{
    AUTO_BUF struct buf before = BUF_INIT(1 << 20), after = BUF_INIT(1 << 20);
    static const char *const files[] = {"vault.key", "vault.json"};
    struct vault *v = NULL;
    int there[2];
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        there[i] = fd_read_file(f->dir_fd, files[i], &before);
    assert_int_equal(vault_open(f->dir_fd, &v, &f->err), -1);
    assert_int_equal(f->err.code, code);
    if (!strstr(f->err.msg, text))
        fail_msg("\"%s\" does not say \"%s\"", f->err.msg, text);
    assert_true(strlen(f->err.msg) + 1 < sizeof(f->err.msg)); /* nothing is cut off */
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        assert_int_equal(fd_read_file(f->dir_fd, files[i], &after), there[i]);
    assert_true(str_eq(buf_str(&before), buf_str(&after)));
}

static void put(struct fixture *f, const char *name, struct str content)
{
    assert_int_equal(fd_write_file(f->dir_fd, name, content, 0600), 0);
}

static void get(struct fixture *f, const char *name, struct buf *b)
{
    buf_clear(b);
    assert_int_equal(fd_read_file(f->dir_fd, name, b), 0);
}

/* ---- files that are not as they should be ---- */

static void a_key_that_others_may_read_is_refused(void **state)
{
    struct fixture *f = *state;
    static const mode_t modes[] = {0644, 0640, 0660, 0602, 0700, 04600};
    set(f, "a", "1");
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        assert_int_equal(fchmodat(f->dir_fd, "vault.key", modes[i], 0), 0);
        assert_refused(f, ERR_FAILED_PRECONDITION, "chmod 0600");
    }
    assert_int_equal(fchmodat(f->dir_fd, "vault.key", 0600, 0), 0);
    set(f, "b", "2");
}

static void a_key_of_somebody_else_is_refused(void **state)
{
    struct fixture *f = *state;
    if (geteuid() != 0) {
        print_message("only root can give files away\n");
        skip();
    }
    set(f, "a", "1");
    assert_int_equal(fchownat(f->dir_fd, "vault.key", 12345, 12345, 0), 0);
    assert_refused(f, ERR_FAILED_PRECONDITION, "chown");
}

static void a_key_of_another_length_is_refused(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf key = BUF_INIT(64);
    set(f, "a", "1");
    get(f, "vault.key", &key);
    put(f, "vault.key", str_n(buf_data(&key), BOX_KEY_BYTES - 1));
    assert_refused(f, ERR_DATA_LOSS, "31 bytes");
    put(f, "vault.key", STR(""));
    assert_refused(f, ERR_DATA_LOSS, "0 bytes");
    buf_append_char(&key, '\n');
    put(f, "vault.key", buf_str(&key));
    assert_refused(f, ERR_DATA_LOSS, "33 bytes");
}

static void a_key_that_is_no_file_is_refused(void **state)
{
    struct fixture *f = *state;
    set(f, "a", "1");
    assert_int_equal(renameat(f->dir_fd, "vault.key", f->dir_fd, "old.key"), 0);
    assert_int_equal(symlinkat("old.key", f->dir_fd, "vault.key"), 0);
    struct vault *v;
    assert_int_equal(vault_open(f->dir_fd, &v, &f->err), -1);
    assert_int_equal(unlinkat(f->dir_fd, "vault.key", 0), 0);
    assert_int_equal(mkfifoat(f->dir_fd, "vault.key", 0600), 0);
    assert_int_equal(vault_open(f->dir_fd, &v, &f->err), -1); /* and does not wait for a writer */
}

static void a_lost_file_is_no_new_beginning(void **state)
{
    struct fixture *f = *state;
    set(f, "a", "1");
    assert_int_equal(renameat(f->dir_fd, "vault.key", f->dir_fd, "old.key"), 0);
    assert_refused(f, ERR_DATA_LOSS, "vault.key in egress/ of the state directory is gone");
    assert_int_equal(renameat(f->dir_fd, "old.key", f->dir_fd, "vault.key"), 0);
    assert_int_equal(renameat(f->dir_fd, "vault.json", f->dir_fd, "old.json"), 0);
    assert_refused(f, ERR_DATA_LOSS, "vault.json in egress/ of the state directory is gone");
    assert_int_equal(renameat(f->dir_fd, "old.json", f->dir_fd, "vault.json"), 0);
    set(f, "b", "2");

    /* Both away on purpose is one. */
    assert_int_equal(unlinkat(f->dir_fd, "vault.key", 0), 0);
    assert_int_equal(unlinkat(f->dir_fd, "vault.json", 0), 0);
    struct vault *v = open_vault(f);
    assert_false(has(v, "a", "1"));
    vault_close(v);
}

static void every_changed_byte_is_noticed(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf file = BUF_INIT(1 << 20);
    struct vault *v = NULL;
    set(f, "a", "1");
    set(f, "b", "2");
    get(f, "vault.json", &file);
    size_t n = buf_len(&file);
    for (size_t i = 0; i < n; i++) {
        if (buf_data(&file)[i] == '\n')
            continue; /* white space */
        buf_data(&file)[i] ^= 1;
        put(f, "vault.json", buf_str(&file));
        if (vault_open(f->dir_fd, &v, &f->err) == 0)
            fail_msg("byte %zu of %zu was changed, and nobody saw it", i, n);
        assert_true(f->err.code == ERR_DATA_LOSS || f->err.code == ERR_FAILED_PRECONDITION);
        buf_data(&file)[i] ^= 1;
    }
    for (size_t i = 0; i < n - 1; i++) { /* without the last line break alone it is whole */
        put(f, "vault.json", str_n(buf_data(&file), i));
        assert_int_equal(vault_open(f->dir_fd, &v, &f->err), -1);
        assert_int_equal(f->err.code, ERR_DATA_LOSS);
    }
    put(f, "vault.json", buf_str(&file));
    v = open_vault(f);
    assert_true(has(v, "a", "1") && has(v, "b", "2"));
    vault_close(v);
}

/* A row that is genuine, but of another time, and a row less: neither passes. */
static void rows_cannot_be_exchanged_or_left_out(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf old = BUF_INIT(1 << 20), new = BUF_INIT(1 << 20), mixed = BUF_INIT(1 << 20);
    set(f, "a", "old value");
    set(f, "b", "2");
    get(f, "vault.json", &old);
    set(f, "a", "new value");
    get(f, "vault.json", &new);
    const char *from = memmem(buf_data(&old), buf_len(&old), "\n{\"name\":\"a\"", 12);
    const char *to = memmem(buf_data(&new), buf_len(&new), "\n{\"name\":\"a\"", 12);
    assert_non_null(from);
    assert_non_null(to);
    size_t n_old = strcspn(from + 1, "\n") + 1, n_new = strcspn(to + 1, "\n") + 1;
    buf_append(&mixed, buf_data(&new), (size_t)(to - buf_data(&new)));
    size_t head = buf_len(&mixed);
    buf_append(&mixed, from, n_old);
    buf_append(&mixed, to + n_new, (size_t)(buf_data(&new) + buf_len(&new) - to) - n_new);
    put(f, "vault.json", buf_str(&mixed));
    assert_refused(f, ERR_DATA_LOSS, "seal");
    mixed.end = mixed.start + head;
    buf_append(&mixed, to + n_new, (size_t)(buf_data(&new) + buf_len(&new) - to) - n_new);
    put(f, "vault.json", buf_str(&mixed));
    assert_refused(f, ERR_DATA_LOSS, "seal");
    put(f, "vault.json", buf_str(&old)); /* a backup */
    struct vault *v = open_vault(f);
    assert_true(has(v, "a", "old value"));
    vault_close(v);
}

static void foreign_json_is_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        enum err_code code;
    } wrong[] = {
        {"", ERR_DATA_LOSS},
        {"{}", ERR_DATA_LOSS},
        {"[]", ERR_DATA_LOSS},
        {"{\"version\":1,\"generation\":1,\"secrets\":[],\"seal\":\"\"}", ERR_DATA_LOSS},
        {"{\"version\":1,\"generation\":1,\"secrets\":{},\"seal\":\"\"}", ERR_DATA_LOSS},
        {"{\"version\":1,\"generation\":1,\"secrets\":[1],\"seal\":\"\"}", ERR_DATA_LOSS},
        {"{\"version\":1,\"generation\":1,\"secrets\":[{\"name\":\"a\",\"set_at\":1,\"box\":\"AAAA\"}],\"seal\":\"\"}",
         ERR_DATA_LOSS},
        {"{\"version\":2,\"generation\":1,\"secrets\":[],\"seal\":\"\"}", ERR_FAILED_PRECONDITION},
    };
    set(f, "a", "1");
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        put(f, "vault.json", str_of(wrong[i].text));
        assert_refused(f, wrong[i].code, "vault.json");
    }
}

static void the_vault_of_another_key_is_refused(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf file = BUF_INIT(1 << 20);
    set(f, "a", "1");
    get(f, "vault.json", &file);
    clear(f);
    set(f, "b", "2");
    put(f, "vault.json", buf_str(&file));
    assert_refused(f, ERR_DATA_LOSS, "does not open with vault.key");
}

static void one_process_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct vault *v = open_vault(f);
    assert_refused(f, ERR_UNAVAILABLE, "in use by another cove-egress");
    vault_close(v);
    set(f, "a", "1");
}

static void a_directory_that_others_may_change_is_refused(void **state)
{
    struct fixture *f = *state;
    set(f, "a", "1");
    assert_int_equal(fchmod(f->dir_fd, 0777), 0);
    assert_refused(f, ERR_FAILED_PRECONDITION, "chmod 0700");
    assert_int_equal(fchmod(f->dir_fd, 0700), 0);
    set(f, "b", "2");
}

/* ---- a disk that fails ---- */

struct plan {
    long nr; /* the system call that fails */
    int fd;  /* only with this first argument; -1: any */
    int error;
};

static int deny(const struct plan *plan)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)plan->nr, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)plan->fd, 0, plan->fd < 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)plan->error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {ARRAY_SIZE(filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return -errno;
    return 0;
}

/* What a child said with its exit code; a signal is a failure of the test. */
static int wait_for(pid_t pid)
{
    int status;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status))
        fail_msg("the child ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Says 0: all is as it was, 1: it was done in spite of the error, 2 and up: wrong. */
static int change_with(struct fixture *f, const struct plan *plan, bool fail_directory)
{
    struct vault_store *store = NULL;
    struct secrets all = SECRETS_NONE;
    struct plan p = *plan;
    bool is_in_force = false;
    if (vault_store_open(f->dir_fd, &store, &all, &f->err) < 0)
        return 2;
    if (fail_directory)
        p.fd = store->dir_fd;
    if (deny(&p) < 0)
        return 3;
    if (vault_store_save(store, &all, &is_in_force, &f->err) == 0)
        return 4;
    if (f->err.errnum != plan->error || !strstr(f->err.msg, is_in_force ? "power cut" : "nothing was changed"))
        return 5;
    return is_in_force ? 1 : 0;
}

static void assert_one_left(struct fixture *f)
{
    struct vault *v = open_vault(f);
    assert_true(has(v, "a", "1"));
    vault_close(v);
    assert_int_equal(faccessat(f->dir_fd, "vault.key.new", F_OK, 0), -1);
}

static void failing_calls_change_nothing(void **state)
{
    struct fixture *f = *state;
    static const struct plan plans[] = {
        {SYS_write, -1, ENOSPC}, {SYS_write, -1, EIO},     {SYS_write, -1, EDQUOT}, {SYS_fsync, -1, EIO},
        {SYS_openat, -1, EROFS}, {SYS_openat, -1, EMFILE}, {SYS_renameat, -1, EIO}, {SYS_unlinkat, -1, EACCES},
    };
    set(f, "a", "1");
    for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(change_with(f, &plans[i], false));
        assert_int_equal(wait_for(pid), 0);
        assert_one_left(f);
        if (plans[i].nr != SYS_renameat && plans[i].nr != SYS_unlinkat)
            assert_int_equal(faccessat(f->dir_fd, "vault.json.new", F_OK, 0), -1);
    }
}

static void a_directory_that_is_not_synced_is_told(void **state)
{
    struct fixture *f = *state;
    static const struct plan plan = {SYS_fsync, -1, EIO};
    set(f, "a", "1");
    pid_t pid = fork();
    if (pid == 0)
        _exit(change_with(f, &plan, true));
    assert_int_equal(wait_for(pid), 1);
    assert_one_left(f);
}

/* RLIMIT_FSIZE: writes get short first, then fail. The vault goes on with what it had, and works again once there is
 * room. */
static int fill_up(struct fixture *f)
{
    struct vault *v = NULL;
    struct rlimit small = {512, RLIM_INFINITY}, large = {RLIM_INFINITY, RLIM_INFINITY};
    static char value[4096];
    memset(value, 'v', sizeof(value));
    (void)signal(SIGXFSZ, SIG_IGN);
    if (vault_open(f->dir_fd, &v, &f->err) < 0 || setrlimit(RLIMIT_FSIZE, &small) < 0)
        return 2;
    if (vault_set(v, STR("large"), str_n(value, sizeof(value)), &f->err) == 0 || f->err.errnum != EFBIG)
        return 3;
    if (!has(v, "a", "1") || vault_get(v, STR("large"), &(struct str){NULL, 0}))
        return 4;
    if (setrlimit(RLIMIT_FSIZE, &large) < 0 || vault_set(v, STR("b"), STR("2"), &f->err) < 0)
        return 5;
    vault_close(v);
    return 0;
}

static void short_writes_change_nothing(void **state)
{
    struct fixture *f = *state;
    set(f, "a", "1");
    pid_t pid = fork();
    if (pid == 0)
        _exit(fill_up(f));
    assert_int_equal(wait_for(pid), 0);
    struct vault *v = open_vault(f);
    assert_true(has(v, "a", "1") && has(v, "b", "2") && !vault_get(v, STR("large"), &(struct str){NULL, 0}));
    vault_close(v);
}

/* A file system of three pages. */
static int on_a_full_disk(struct fixture *f)
{
    struct vault *v = NULL;
    static char value[SECRET_VALUE_MAX];
    memset(value, 'v', sizeof(value));
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("small", f->path, "tmpfs", MS_NOSUID | MS_NODEV, "size=12k,mode=0700") < 0)
        return 77;
    int dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (vault_open(dir_fd, &v, &f->err) < 0 || vault_set(v, STR("a"), STR("1"), &f->err) < 0)
        return 2;
    if (vault_set(v, STR("large"), str_n(value, sizeof(value)), &f->err) == 0 || f->err.errnum != ENOSPC ||
        f->err.code != ERR_RESOURCE_EXHAUSTED)
        return 3;
    if (!has(v, "a", "1") || vault_set(v, STR("a"), STR("2"), &f->err) < 0)
        return 4;
    vault_close(v);
    if (vault_open(dir_fd, &v, &f->err) < 0 || !has(v, "a", "2"))
        return 5;
    vault_close(v);
    return 0;
}

static void a_full_disk_changes_nothing(void **state)
{
    struct fixture *f = *state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(on_a_full_disk(f));
    int code = wait_for(pid);
    if (code == 77) {
        print_message("no mount namespace can be made here\n");
        skip();
    }
    assert_int_equal(code, 0);
}

/* ---- a process that is killed ---- */

/*
 * Runs fn in a child that is killed at the beginning of its nth system call. False: it ended before that, by itself and
 * in good order. So every state that the files can be in is seen.
 */
static bool kill_at(struct fixture *f, int (*fn)(struct fixture *f), unsigned nth, bool *ret_can_trace)
{
    int status;
    *ret_can_trace = true;
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            _exit(77);
        (void)raise(SIGSTOP);
        _exit(fn(f));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        *ret_can_trace = false;
        return false;
    }
    assert_true(WIFSTOPPED(status));
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    for (unsigned stops = 0;; stops++) {
        if (stops == 2 * nth) { /* each call stops twice */
            (void)kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, &status, 0), pid);
            return true;
        }
        if (ptrace(PTRACE_SYSCALL, pid, 0, 0) < 0)
            fail_msg("the child can't go on");
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return false;
        }
        if (!WIFSTOPPED(status))
            fail_msg("the child ended by signal %d", WTERMSIG(status));
    }
}

static int change(struct fixture *f)
{
    struct vault *v = NULL;
    if (vault_open(f->dir_fd, &v, &f->err) < 0)
        return 2;
    if (vault_set(v, STR("a"), STR("2"), &f->err) < 0)
        return 3;
    vault_close(v);
    return 0;
}

/* The value that a kill left is the old one or the new one; once it is the new one, killing later never brings the old
 * one. */
static void killed_at_any_moment_it_is_the_old_one_or_the_new_one(void **state)
{
    struct fixture *f = *state;
    unsigned old_ones = 0, new_ones = 0;
    for (unsigned nth = 1, goes_on = 1; goes_on; nth++) {
        bool can_trace;
        clear(f);
        set(f, "a", "1");
        set(f, "b", "stays");
        goes_on = kill_at(f, change, nth, &can_trace);
        if (!can_trace) {
            print_message("children can't be traced here\n");
            skip();
        }
        struct vault *v = open_vault(f);
        bool is_new = has(v, "a", "2");
        assert_true(is_new || has(v, "a", "1"));
        assert_true(has(v, "b", "stays"));
        assert_true(is_new || new_ones == 0);
        assert_true(is_new || goes_on);
        old_ones += !is_new;
        new_ones += is_new;
        assert_int_equal(vault_set(v, STR("c"), STR("3"), &f->err), 0); /* what was left behind is in nobody's way */
        vault_close(v);
        assert_int_equal(faccessat(f->dir_fd, "vault.json.new", F_OK, 0), -1);
    }
    assert_true(old_ones > 5 && new_ones > 1);
}

static void killed_at_its_first_start_it_starts_again(void **state)
{
    struct fixture *f = *state;
    unsigned kills = 0;
    for (unsigned nth = 1, goes_on = 1; goes_on; nth++) {
        bool can_trace;
        clear(f);
        goes_on = kill_at(f, change, nth, &can_trace);
        if (!can_trace) {
            print_message("children can't be traced here\n");
            skip();
        }
        struct vault *v = open_vault(f);
        assert_true(goes_on || has(v, "a", "2"));
        assert_int_equal(vault_set(v, STR("a"), STR("3"), &f->err), 0);
        vault_close(v);
        v = open_vault(f);
        assert_true(has(v, "a", "3"));
        vault_close(v);
        assert_int_equal(faccessat(f->dir_fd, "vault.key.new", F_OK, 0), -1);
        kills += goes_on;
    }
    assert_true(kills > 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_key_that_others_may_read_is_refused),
        TEST(a_key_of_somebody_else_is_refused),
        TEST(a_key_of_another_length_is_refused),
        TEST(a_key_that_is_no_file_is_refused),
        TEST(a_lost_file_is_no_new_beginning),
        TEST(every_changed_byte_is_noticed),
        TEST(rows_cannot_be_exchanged_or_left_out),
        TEST(foreign_json_is_refused),
        TEST(the_vault_of_another_key_is_refused),
        TEST(one_process_at_a_time),
        TEST(a_directory_that_others_may_change_is_refused),
        TEST(failing_calls_change_nothing),
        TEST(a_directory_that_is_not_synced_is_told),
        TEST(short_writes_change_nothing),
        TEST(a_full_disk_changes_nothing),
        TEST(killed_at_any_moment_it_is_the_old_one_or_the_new_one),
        TEST(killed_at_its_first_start_it_starts_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
