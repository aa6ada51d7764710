/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/domain/domain_store.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PEM_MAX = 16 * 1024, AUTHORITIES_MAX = 4 << 20, CA_LEAST_DAYS = 365, STORE_DAY_S = 86400 };

#define CA_CERT DOMAIN_DIR "/ca.pem"
#define CA_KEY DOMAIN_DIR "/ca.key"
#define BUNDLE DOMAIN_DIR "/bundle.pem"

/* What held a key is wiped. */
static void wipe(struct buf *b)
{
    if (b->data)
        mem_wipe(b->data, b->cap);
    buf_fini(b);
}
#define AUTO_SECRET __attribute__((cleanup(wipe)))

static int make_dirs(const char *state_dir, int *ret_fd, struct err *err)
{
    if (mkdir(state_dir, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make the state directory %s", state_dir);
    AUTO_CLOSE int fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "open the state directory %s", state_dir);
    /* For all to enter: the CA's certificate is everybody's to trust. */
    if ((mkdirat(fd, DOMAIN_DIR, 0755) < 0 && errno != EEXIST) || fchmodat(fd, DOMAIN_DIR, 0755, 0) < 0)
        return err_errno(err, errno, "make %s/" DOMAIN_DIR, state_dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int domain_store_replace(int dir, const char *path, struct str content, mode_t mode, struct err *err)
{
    AUTO_FREE char *tmp = mem_printf("%s.new", path);
    if (unlinkat(dir, tmp, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "remove %s", tmp);
    AUTO_CLOSE int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "make %s", tmp);
    int r = fd_write_all(fd, content.p, content.n);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || renameat(dir, tmp, dir, path) < 0))
        r = -errno;
    return r < 0 ? err_errno(err, r, "write %s", path) : 0;
}

int domain_store_load(const char *state_dir, struct buf *file, struct domain *ret_domain, struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/" DOMAIN_FILE, state_dir);
    int r = fd_read_file(AT_FDCWD, path, file);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return err_errno(err, r, "read %s", path);
    if (domain_parse(buf_str(file), ret_domain) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s is damaged", path);
    return 1;
}

/* The CA in *cert and *key, when there is one for this domain that lasts. */
static bool load_ca(int dir, const char *name, struct buf *cert, struct buf *key)
{
    struct tls_cert_info info;
    int64_t now = (int64_t)(clock_real() / USEC_PER_SEC);
    struct str line, text;
    if (fd_read_file(dir, CA_CERT, cert) < 0 || fd_read_file(dir, CA_KEY, key) < 0 ||
        tls_cert_read(buf_str(cert), &info) < 0 || info.until < now + (int64_t)CA_LEAST_DAYS * STORE_DAY_S)
        return false;
    text = buf_str(key);
    return str_split(&text, '\n', &line) && str_starts(line, STR("domain: ")) && str_eqc(str_sub(line, 8), name);
}

static int make_ca(int dir, const char *name, struct buf *cert, struct buf *key, struct err *err)
{
    wipe(key);
    buf_clear(cert);
    buf_init(key, PEM_MAX);
    (void)buf_printf(key, "domain: %s\n", name);
    int r = tls_ca_make(name, cert, key);
    if (r < 0)
        return err_errno(err, r, "make a CA");
    r = domain_store_replace(dir, CA_KEY, buf_str(key), 0600, err);
    return r < 0 ? r : domain_store_replace(dir, CA_CERT, buf_str(cert), 0644, err);
}

static int put(int dir, const char *name, struct str chain, struct str key, bool is_own, struct err *err)
{
    AUTO_SECRET struct buf pem = BUF_INIT(DOMAIN_FILE_MAX), file = BUF_INIT(DOMAIN_FILE_MAX);
    (void)buf_append_str(&pem, key);
    (void)buf_append_char(&pem, '\n'); /* its last line may have no end */
    (void)buf_append_str(&pem, chain);
    const struct domain domain = {str_of(name), buf_str(&pem), is_own};
    int r = buf_error(&pem) < 0 ? buf_error(&pem) : domain_format(&domain, &file);
    if (r < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "certificates and key together are larger than %d KiB",
                       DOMAIN_FILE_MAX / 1024);
    return domain_store_replace(dir, DOMAIN_FILE, buf_str(&file), 0600, err);
}

int domain_store_make(const char *state_dir, const char *name, struct err *err)
{
    AUTO_SECRET struct buf ca_key = BUF_INIT(PEM_MAX), key = BUF_INIT(PEM_MAX);
    AUTO_BUF struct buf ca = BUF_INIT(PEM_MAX), cert = BUF_INIT(PEM_MAX);
    AUTO_CLOSE int dir = -1;
    if (make_dirs(state_dir, &dir, err) < 0)
        return -1;
    bool has_ca = load_ca(dir, name, &ca, &ca_key);
    int r = has_ca ? tls_cert_issue(buf_str(&ca), buf_str(&ca_key), name, &cert, &key) : -EINVAL;
    if (r == -EINVAL) { /* none, or its two files don't belong together */
        if (make_ca(dir, name, &ca, &ca_key, err) < 0)
            return -1;
        r = tls_cert_issue(buf_str(&ca), buf_str(&ca_key), name, &cert, &key);
    }
    if (r < 0)
        return err_errno(err, r, "make a certificate");
    return put(dir, name, buf_str(&cert), buf_str(&key), true, err);
}

int domain_store_put(const char *state_dir, const char *name, struct str chain, struct str key, struct err *err)
{
    AUTO_CLOSE int dir = -1;
    /* The key's file may begin with text of its maker, such as "Bag Attributes". */
    const char *begin = memmem(key.p, key.n, "-----BEGIN ", 11);
    if (!begin)
        return err_set(err, ERR_INVALID_ARGUMENT, "there is no key in PEM");
    return make_dirs(state_dir, &dir, err) < 0
               ? -1
               : put(dir, name, chain, str_sub(key, (size_t)(begin - key.p)), false, err);
}

int domain_store_remove(const char *state_dir, struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/" DOMAIN_FILE, state_dir);
    if (unlink(path) == 0)
        return 1;
    return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, errno, "remove %s", path);
}

char *domain_store_ca(const char *state_dir)
{
    return mem_printf("%s/" CA_CERT, state_dir);
}

/* Where distributions keep what OpenSSL's programs trust: Debian, Fedora, Alpine. */
static bool append_authorities(struct buf *to)
{
    static const char *const paths[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        buf_clear(to);
        if (fd_read_file(AT_FDCWD, paths[i], to) == 0 && buf_len(to) > 0)
            return true;
    }
    buf_clear(to);
    return false;
}

char *domain_store_bundle(const char *state_dir)
{
    AUTO_BUF struct buf all = BUF_INIT(AUTHORITIES_MAX), ca = BUF_INIT(PEM_MAX);
    AUTO_CLOSE int dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err;
    if (dir < 0 || fd_read_file(dir, CA_CERT, &ca) < 0 || !append_authorities(&all))
        return NULL;
    (void)buf_append_char(&all, '\n');
    (void)buf_append_str(&all, buf_str(&ca));
    return buf_error(&all) == 0 && domain_store_replace(dir, BUNDLE, buf_str(&all), 0644, &err) == 0
               ? mem_printf("%s/" BUNDLE, state_dir)
               : NULL;
}
