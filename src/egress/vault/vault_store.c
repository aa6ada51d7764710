/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/vault/vault_store.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY "vault.key"
#define KEY_NEW "vault.key.new"
#define FILE_ "vault.json"
#define FILE_NEW "vault.json.new"
#define WHERE "in egress/ of the state directory"

enum { FILE_VERSION = 1, FILE_MAX = 32 << 20, DIGEST = 32 };

void secrets_fini(struct secrets *secrets)
{
    locked_free(&secrets->region);
    mem_free(secrets->items);
    *secrets = SECRETS_NONE;
}

bool secret_name_is_valid(struct str name)
{
    return name.n > 0 && name.n <= SECRET_NAME_MAX && str_is_of(str_n(name.p, 1), "A-Za-z_") &&
           str_is_of(name, "A-Za-z0-9_.-");
}

static struct box_label secret_label(const struct secret *one)
{
    return (struct box_label){"secret", one->set_at_us, str_of(one->name)};
}

/* ---- the seal of the file ---- */

/* Of each secret: name, NUL, time, the box's digest. Only the name varies in length, and the NUL ends it, so different
 * secrets never give the same bytes. */
struct vault_store_digest {
    EVP_MD_CTX *ctx;
    bool failed;
};

static void digest_add(struct vault_store_digest *d, const void *p, size_t n)
{
    if (!d->failed && EVP_DigestUpdate(d->ctx, p, n) != 1)
        d->failed = true;
}

static void digest_begin(struct vault_store_digest *d)
{
    d->ctx = EVP_MD_CTX_new();
    d->failed = !d->ctx || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1;
}

static void digest_secret(struct vault_store_digest *d, const struct secret *one, struct str box)
{
    uint8_t at[8], inner[DIGEST];
    unsigned n = 0;
    for (size_t i = 0; i < sizeof(at); i++)
        at[i] = (uint8_t)(one->set_at_us >> (8 * i));
    digest_add(d, one->name, strlen(one->name) + 1);
    digest_add(d, at, sizeof(at));
    if (EVP_Digest(box.p, box.n, inner, &n, EVP_sha256(), NULL) != 1)
        d->failed = true;
    else
        digest_add(d, inner, sizeof(inner));
}

static int digest_end(struct vault_store_digest *d, char ret_digest[static DIGEST])
{
    unsigned n = 0;
    if (!d->failed && EVP_DigestFinal_ex(d->ctx, (uint8_t *)ret_digest, &n) != 1)
        d->failed = true;
    EVP_MD_CTX_free(TAKE_PTR(d->ctx));
    return d->failed ? -ENOMEM : 0;
}

/* ---- reading ---- */

static int damaged(struct err *err, const char *what)
{
    return err_set(err, ERR_DATA_LOSS,
                   FILE_ " " WHERE " is damaged (%s). Restore it from a backup together with " KEY
                         "; or remove both files, which gives up all secrets, and set them again",
                   what);
}

static int add_secret(const struct vault_store *s, const json_t *row, struct secrets *all, struct vault_store_digest *d,
                      size_t *used, struct err *err)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *text = json_string_value(json_object_get(row, "box"));
    json_int_t at = json_integer_value(json_object_get(row, "set_at"));
    if (json_object_size(row) != 3 || !name || !text || at <= 0 || !secret_name_is_valid(str_of(name)))
        return damaged(err, "a secret's fields");
    struct secret *one = &all->items[all->n];
    *one = (struct secret){.set_at_us = (uint64_t)at, .at = *used};
    memcpy(one->name, name, strlen(name) + 1);
    if (all->n > 0 && strcmp(all->items[all->n - 1].name, name) >= 0)
        return damaged(err, "the order of secrets");
    AUTO_BUF struct buf box = BUF_INIT(SECRET_VALUE_MAX + BOX_OVERHEAD);
    if (buf_append_unbase64(&box, str_of(text)) < 0 || buf_len(&box) <= BOX_OVERHEAD ||
        buf_len(&box) - BOX_OVERHEAD > all->region.n - *used)
        return damaged(err, "a secret's length");
    one->n = buf_len(&box) - BOX_OVERHEAD;
    struct box_label label = secret_label(one);
    int r = box_open(vault_store_key(s), &label, buf_str(&box), all->region.p + one->at);
    if (r == -EBADMSG)
        return damaged(err, "a secret does not open with " KEY);
    if (r < 0)
        return err_errno(err, r, "open a secret");
    digest_secret(d, one, buf_str(&box));
    *used += one->n;
    all->n++;
    return 0;
}

/* An upper bound of what all values take: it may lie, add_secret() looks. */
static size_t values_bound(const json_t *rows)
{
    size_t n = 0;
    JSON_FOREACH (row, rows)
        n += MIN(json_string_length(json_object_get(row, "box")) / 4 * 3, (size_t)SECRET_VALUE_MAX);
    return n;
}

static int check_seal(struct vault_store *s, const json_t *root, struct vault_store_digest *d, struct err *err)
{
    char digest[DIGEST];
    const char *text = json_string_value(json_object_get(root, "seal"));
    json_int_t generation = json_integer_value(json_object_get(root, "generation"));
    AUTO_BUF struct buf box = BUF_INIT(BOX_OVERHEAD);
    int r = digest_end(d, digest);
    if (r < 0)
        return err_errno(err, r, "read " FILE_);
    char nothing;
    struct box_label label = {"file", (uint64_t)generation, str_n(digest, sizeof(digest))};
    if (!text || generation <= 0 || buf_append_unbase64(&box, str_of(text)) < 0 || buf_len(&box) != BOX_OVERHEAD ||
        box_open(vault_store_key(s), &label, buf_str(&box), &nothing) < 0)
        return damaged(err, "its seal does not fit " KEY " or its content");
    s->generation = (uint64_t)generation;
    return 0;
}

static int take_rows(struct vault_store *s, const json_t *root, struct secrets *all, struct err *err)
{
    const json_t *version = json_object_get(root, "version"), *rows = json_object_get(root, "secrets");
    if (json_integer_value(version) > FILE_VERSION)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       FILE_ " " WHERE " was written by a newer Cove: start that one, or restore the older file");
    if (json_object_size(root) != 4 || json_integer_value(version) != FILE_VERSION || !json_is_array(rows) ||
        json_array_size(rows) > SECRETS_MAX)
        return damaged(err, "its fields");
    int r = locked_new(values_bound(rows), &all->region);
    if (r < 0)
        return err_errno(err, r, "lock memory for the secrets (raise the limit on locked memory, RLIMIT_MEMLOCK)");
    all->items = mem_array(SECRETS_MAX, sizeof(all->items[0]));
    struct vault_store_digest d;
    size_t used = 0;
    digest_begin(&d);
    JSON_FOREACH (row, rows)
        if (add_secret(s, row, all, &d, &used, err) < 0) {
            EVP_MD_CTX_free(d.ctx);
            return -1;
        }
    return check_seal(s, root, &d, err);
}

static int vault_store_load(struct vault_store *s, struct secrets *ret_secrets, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(FILE_MAX);
    AUTO_CLOSE int fd = openat(s->dir_fd, FILE_, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r = fd < 0 ? -errno : fd_read_all(fd, &text);
    if (r == -ENOENT)
        return err_set(err, ERR_DATA_LOSS,
                       FILE_ " " WHERE " is gone. Restore it from a backup together with " KEY "; or remove " KEY
                             " too, which gives up all secrets, and set them again");
    if (r == -ENOBUFS)
        return damaged(err, "too large");
    if (r < 0)
        return err_errno(err, r, "read " FILE_ " " WHERE);
    json_error_t why;
    json_t *root = json_loadb(buf_data(&text) ? buf_data(&text) : "", buf_len(&text), JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return damaged(err, "no JSON");
    struct secrets all = SECRETS_NONE;
    r = take_rows(s, root, &all, err);
    json_decref(root);
    if (r < 0) {
        secrets_fini(&all);
        return -1;
    }
    *ret_secrets = all;
    return 0;
}

/* ---- writing ---- */

static int format(const struct vault_store *s, const struct secrets *all, struct buf *to)
{
    AUTO_BUF struct buf box = BUF_INIT(SECRET_VALUE_MAX + BOX_OVERHEAD);
    struct vault_store_digest d;
    char digest[DIGEST];
    int r = 0;
    digest_begin(&d);
    buf_printf(to, "{\"version\":%d,\"generation\":%llu,\"secrets\":[", FILE_VERSION,
               (unsigned long long)s->generation + 1);
    for (size_t i = 0; r == 0 && i < all->n; i++) {
        const struct secret *one = &all->items[i];
        struct box_label label = secret_label(one);
        buf_clear(&box);
        r = box_seal(vault_store_key(s), &label, secret_value(all, one), &box);
        digest_secret(&d, one, buf_str(&box));
        buf_printf(to, "%s\n{\"name\":\"%s\",\"set_at\":%llu,\"box\":\"", i ? "," : "", one->name,
                   (unsigned long long)one->set_at_us);
        buf_append_base64(to, buf_str(&box));
        buf_append_cstr(to, "\"}");
    }
    int ended = digest_end(&d, digest);
    if (r < 0 || ended < 0)
        return r < 0 ? r : ended;
    buf_clear(&box);
    r = box_seal(vault_store_key(s), &(struct box_label){"file", s->generation + 1, str_n(digest, sizeof(digest))},
                 STR(""), &box);
    buf_append_cstr(to, "],\n\"seal\":\"");
    buf_append_base64(to, buf_str(&box));
    buf_append_cstr(to, "\"}\n");
    return r < 0 ? r : buf_error(to);
}

/* A file with this content, on disk. What is there under the name is from a crash and goes. */
static int write_new(int dir_fd, const char *name, struct str content)
{
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        return -errno;
    AUTO_CLOSE int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, content.p, content.n);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(dir_fd, name, 0);
    return r;
}

int vault_store_save(struct vault_store *s, const struct secrets *secrets, bool *ret_is_in_force, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(FILE_MAX);
    *ret_is_in_force = false;
    int r = format(s, secrets, &text);
    if (r == 0)
        r = write_new(s->dir_fd, FILE_NEW, buf_str(&text));
    if (r == 0 && renameat(s->dir_fd, FILE_NEW, s->dir_fd, FILE_) < 0) {
        r = -errno;
        (void)unlinkat(s->dir_fd, FILE_NEW, 0);
    }
    if (r < 0)
        return err_errno(err, r, "nothing was changed: write " FILE_ " " WHERE);
    s->generation++;
    *ret_is_in_force = true;
    if (fsync(s->dir_fd) < 0)
        return err_errno(err, errno, "it is in force, but a power cut may undo it: write the directory of " FILE_);
    return 0;
}

/* ---- the key ---- */

static int vault_store_read_key(struct vault_store *s, const struct stat *st, struct err *err)
{
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid())
        return err_set(err, ERR_FAILED_PRECONDITION,
                       KEY " " WHERE " is not a file of cove-egress (uid %u): give it back with chown, or restore it",
                       (unsigned)geteuid());
    if (st->st_mode & 07177)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       KEY " " WHERE
                           " has mode %04o: others may have read it. If not, chmod 0600; if so, remove it and " FILE_
                           ", and replace all secrets",
                       (unsigned)st->st_mode & 07777);
    if (st->st_size != BOX_KEY_BYTES)
        return err_set(err, ERR_DATA_LOSS,
                       KEY " " WHERE
                           " is damaged: %lld bytes, not %d. Restore it from a backup; or remove it and " FILE_
                           ", which gives up all secrets",
                       (long long)st->st_size, BOX_KEY_BYTES);
    int r = locked_new(BOX_KEY_BYTES, &s->key);
    if (r < 0)
        return err_errno(err, r, "lock memory for " KEY " (raise the limit on locked memory, RLIMIT_MEMLOCK)");
    ssize_t n = pread(s->key_fd, s->key.p, BOX_KEY_BYTES, 0);
    if (n != BOX_KEY_BYTES)
        return err_errno(err, n < 0 ? errno : EIO, "read " KEY " " WHERE);
    return 0;
}

static int make_key(int dir_fd, struct err *err)
{
    AUTO_LOCKED struct locked key = LOCKED_NONE;
    if (faccessat(dir_fd, FILE_, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return err_set(err, ERR_DATA_LOSS,
                       KEY " " WHERE " is gone, but " FILE_ " is there. Restore the key from a backup; or remove " FILE_
                           ", which gives up all secrets, and set them again");
    int r = locked_new(BOX_KEY_BYTES, &key);
    if (r == 0) {
        id_random_bytes(key.p, key.n);
        r = write_new(dir_fd, KEY_NEW, str_n(key.p, key.n));
    }
    if (r == 0 && (linkat(dir_fd, KEY_NEW, dir_fd, KEY, 0) < 0 || fsync(dir_fd) < 0))
        r = -errno;
    return r < 0 ? err_errno(err, r, "make " KEY " " WHERE) : 0;
}

/* Opens, locks and reads vault.key, which is made when there is none. *ret_is_first: what belongs to it may not be
 * there yet. */
static int open_key(struct vault_store *s, bool *ret_is_first, struct err *err)
{
    static const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat st, other;
    s->key_fd = openat(s->dir_fd, KEY, flags);
    if (s->key_fd < 0 && errno == ENOENT) {
        if (make_key(s->dir_fd, err) < 0)
            return -1;
        s->key_fd = openat(s->dir_fd, KEY, flags);
    }
    if (s->key_fd < 0 || fstat(s->key_fd, &st) < 0)
        return err_errno(err, errno, "open " KEY " " WHERE);
    if (vault_store_read_key(s, &st, err) < 0)
        return -1;
    if (flock(s->key_fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? err_set(err, ERR_UNAVAILABLE, KEY " is in use by another cove-egress")
                                    : err_errno(err, errno, "lock " KEY);
    *ret_is_first = fstatat(s->dir_fd, KEY_NEW, &other, AT_SYMLINK_NOFOLLOW) == 0 && other.st_dev == st.st_dev &&
                    other.st_ino == st.st_ino;
    return 0;
}

/* An empty file for a new key, unless an interrupted start came as far as that. */
static int finish_first(struct vault_store *s, struct err *err)
{
    bool is_in_force;
    if (faccessat(s->dir_fd, FILE_, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return err_errno(err, errno, "look for " FILE_);
        if (vault_store_save(s, &SECRETS_NONE, &is_in_force, err) < 0)
            return -1;
    }
    if (fsync(s->dir_fd) < 0 || unlinkat(s->dir_fd, KEY_NEW, 0) < 0)
        return err_errno(err, errno, "finish the first start of the vault");
    return 0;
}

static int vault_store_open_dir(int dir_fd, int *ret_fd, struct err *err)
{
    struct stat st;
    AUTO_CLOSE int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "open the vault's directory");
    if (st.st_mode & 0022 || (st.st_uid != geteuid() && st.st_uid != 0))
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "egress/ in the state directory may be changed by others (mode %04o, uid %u): chmod 0700 and "
                       "chown it to cove-egress, uid %u",
                       (unsigned)st.st_mode & 07777, (unsigned)st.st_uid, (unsigned)geteuid());
    *ret_fd = TAKE_FD(fd);
    return 0;
}

void vault_store_close(struct vault_store *s)
{
    if (!s)
        return;
    locked_free(&s->key);
    (void)fd_close(s->key_fd); /* and unlocks it */
    (void)fd_close(s->dir_fd);
    mem_free(s);
}

int vault_store_open(int dir_fd, struct vault_store **ret_store, struct secrets *ret_secrets, struct err *err)
{
    struct vault_store *s = mem_new(struct vault_store);
    bool is_first = false;
    s->dir_fd = s->key_fd = -1;
    int r = vault_store_open_dir(dir_fd, &s->dir_fd, err);
    if (r == 0)
        r = open_key(s, &is_first, err);
    if (r == 0 && is_first)
        r = finish_first(s, err);
    if (r == 0)
        r = vault_store_load(s, ret_secrets, err);
    if (r < 0) {
        vault_store_close(s);
        return -1;
    }
    *ret_store = s;
    return 0;
}
