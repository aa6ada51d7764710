/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/state.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "config/config.h"
#include "wire/supervisor.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_FIRST_UID = 0x6fff0000, KEY_BYTES = 20, LOCK_MS = 30000, LOCK_AGAIN_USEC = 5000 };

uid_t state_uid(enum state_user user)
{
    static const char *const accounts[] = {
        [STATE_API] = "cove", [STATE_EGRESS] = "cove-egress", [STATE_NETMAKER] = NULL};
    const struct passwd *account = accounts[user] ? getpwnam(accounts[user]) : NULL;
    return account && account->pw_uid ? account->pw_uid : STATE_FIRST_UID + (uid_t)user;
}

static int state_make_dir(const char *path, mode_t mode, uid_t owner, struct err *err)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make directory %s", path);
    if (chown(path, owner, owner) < 0 || chmod(path, mode) < 0)
        return err_errno(err, errno, "set up directory %s", path);
    return 0;
}

static int make_below(const char *dir, const char *name, mode_t mode, uid_t owner, struct err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(err, ERR_INVALID_ARGUMENT, "path too long: %.64s...", dir);
    return state_make_dir(path, mode, owner, err);
}

int state_prepare(const struct config *config, struct err *err)
{
    (void)umask(022);
    if (state_make_dir(config->state_dir, 0755, 0, err) < 0 || state_make_dir(config->run_dir, 0755, 0, err) < 0)
        return -1;
    if (make_below(config->state_dir, "pool", 0700, 0, err) < 0 ||
        make_below(config->state_dir, "templates", 0755, 0, err) < 0 ||
        make_below(config->state_dir, "api", 0700, state_uid(STATE_API), err) < 0)
        return -1;
    return make_below(config->state_dir, "egress", 0700, state_uid(STATE_EGRESS), err);
}

/* Who took the lock last is there, as far as its number says. */
static bool owner_lives(int fd)
{
    char text[24] = "";
    uint64_t pid;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    return n <= 0 || str_to_u64(str_n(text, (size_t)n), &pid) < 0 || pid > INT32_MAX || pid < 2 ||
           kill((pid_t)pid, 0) == 0;
}

static int say_owner(int fd)
{
    char text[24];
    int n = snprintf(text, sizeof(text), "%d", (int)getpid());
    return ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n ? -errno : 0;
}

int state_lock(const struct config *config, const char *name, int *ret_fd, struct err *err)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", config->state_dir, name);
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    /* Whose keeper has the other lock is the only coved that may have this one: whoever still holds it is on its way
     * out. */
    const bool is_ending = strcmp(name, STATE_LOCK_COVED) == 0;
    usec_t end = clock_mono() + LOCK_MS * USEC_PER_MS;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK && (is_ending || !owner_lives(fd)) && clock_mono() < end) {
            (void)usleep(LOCK_AGAIN_USEC);
            continue;
        }
        if (errno == EWOULDBLOCK)
            return err_set(err, ERR_ALREADY_EXISTS,
                           "another coved runs on %s; stop it with 'make stop', or set COVE_STATE", config->state_dir);
        return err_errno(err, errno, "lock %s", path);
    }
    int r = say_owner(fd);
    if (r < 0)
        return err_errno(err, r, "write %s", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static bool is_key(struct str s)
{
    return s.n >= SUP_KEY_LEAST && s.n < STATE_KEY_MAX && str_is_of(s, "!-~");
}

static int make_key(const char *path, const char *prefix, char ret_key[static STATE_KEY_MAX], struct err *err)
{
    unsigned char random[KEY_BYTES];
    char text[STATE_KEY_MAX];
    AUTO_BUF struct buf b = BUF_INIT(STATE_KEY_MAX);
    id_random_bytes(random, sizeof(random));
    (void)buf_append_cstr(&b, prefix);
    (void)buf_append_hex(&b, str_n(random, sizeof(random)));
    (void)buf_append_char(&b, '\n');
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "make the key file %s", path);
    int r = fd_write_all(fd, buf_data(&b), buf_len(&b));
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    (void)fd_close(fd);
    if (r < 0)
        return err_errno(err, r, "write the key file %s", path);
    (void)snprintf(text, sizeof(text), "%.*s", (int)buf_len(&b) - 1, buf_data(&b));
    memcpy(ret_key, text, sizeof(text));
    return 0;
}

static int copy_key(struct str key, const char *where, char ret_key[static STATE_KEY_MAX], struct err *err)
{
    if (!is_key(key))
        return err_set(err, ERR_INVALID_ARGUMENT, "the API key in %s must have %d to %d printable characters", where,
                       SUP_KEY_LEAST, STATE_KEY_MAX - 1);
    memcpy(ret_key, key.p, key.n);
    ret_key[key.n] = 0;
    return 0;
}

int state_key(const struct config *config, char ret_key[static STATE_KEY_MAX], struct err *err)
{
    const char *given = getenv("COVE_API_KEY");
    if (given && *given)
        return copy_key(str_of(given), "COVE_API_KEY", ret_key, err);
    char path[4096];
    AUTO_BUF struct buf b = BUF_INIT(STATE_KEY_MAX);
    (void)snprintf(path, sizeof(path), "%s/key", config->state_dir);
    int r = fd_read_file(AT_FDCWD, path, &b);
    if (r == -ENOENT)
        return make_key(path, config->key_prefix, ret_key, err);
    if (r < 0)
        return err_errno(err, r, "read the key file %s", path);
    struct str rest = buf_str(&b), line = STR_NULL;
    (void)str_split(&rest, '\n', &line);
    return copy_key(line, path, ret_key, err);
}
