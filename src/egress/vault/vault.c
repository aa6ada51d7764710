/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/vault/vault.h"
#include "base/clock.h"
#include "base/mem.h"
#include "egress/vault/vault_store.h"

struct vault {
    struct vault_store *store; /* owned */
    struct secrets secrets;
};

int vault_open(int dir_fd, struct vault **ret_vault, struct err *err)
{
    struct vault *v = mem_new(struct vault);
    if (vault_store_open(dir_fd, &v->store, &v->secrets, err) < 0) {
        mem_free(v);
        return err_prefix(err, "open the vault");
    }
    *ret_vault = v;
    return 0;
}

void vault_close(struct vault *v)
{
    if (!v)
        return;
    secrets_fini(&v->secrets);
    vault_store_close(v->store);
    mem_free(v);
}

/* ---- named secrets ---- */

/* Where it is, or where it belongs. */
static size_t vault_find(const struct secrets *all, struct str name, bool *ret_is_there)
{
    size_t from = 0, to = all->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        struct str other = str_of(all->items[middle].name);
        int order = memcmp(name.p, other.p, MIN(name.n, other.n));
        if (order == 0 && name.n == other.n) {
            *ret_is_there = true;
            return middle;
        }
        if (order < 0 || (order == 0 && name.n < other.n))
            to = middle;
        else
            from = middle + 1;
    }
    *ret_is_there = false;
    return from;
}

static void append(struct secrets *to, size_t *used, const char *name, uint64_t set_at_us, struct str value)
{
    struct secret *one = &to->items[to->n++];
    *one = (struct secret){.set_at_us = set_at_us, .at = *used, .n = value.n};
    memcpy(one->name, name, strlen(name) + 1);
    memcpy(to->region.p + *used, value.p, value.n);
    *used += value.n;
}

/* All of `from` without the one called `name`, and with a new one of that name unless value is empty. Values are moved
 * to new memory. */
static int copy_with(const struct secrets *from, struct str name, struct str value, struct secrets *ret_secrets)
{
    char text[SECRET_NAME_MAX + 1] = {0};
    memcpy(text, name.p, name.n);
    bool is_there;
    size_t place = vault_find(from, name, &is_there), bytes = value.n, used = 0;
    for (size_t i = 0; i < from->n; i++)
        bytes += i == place && is_there ? 0 : from->items[i].n;
    struct secrets all = SECRETS_NONE;
    int r = locked_new(bytes, &all.region);
    if (r < 0)
        return r;
    all.items = mem_array(from->n + 1, sizeof(all.items[0]));
    for (size_t i = 0; i <= from->n; i++) {
        if (i == place && value.n)
            append(&all, &used, text, clock_real(), value);
        if (i < from->n && !(i == place && is_there))
            append(&all, &used, from->items[i].name, from->items[i].set_at_us, secret_value(from, &from->items[i]));
    }
    *ret_secrets = all;
    return 0;
}

static int vault_replace(struct vault *v, struct str name, struct str value, struct err *err)
{
    struct secrets all;
    bool is_in_force;
    int r = copy_with(&v->secrets, name, value, &all);
    if (r < 0)
        return err_errno(err, r, "lock memory for the secrets (raise the limit on locked memory, RLIMIT_MEMLOCK)");
    r = vault_store_save(v->store, &all, &is_in_force, err);
    if (is_in_force) {
        struct secrets old = v->secrets;
        v->secrets = all;
        all = old;
    }
    secrets_fini(&all);
    return r;
}

/* What would end a header field or start another. */
static bool breaks_fields(struct str text)
{
    for (size_t i = 0; text.p && i < text.n; i++)
        if (text.p[i] == '\0' || text.p[i] == '\r' || text.p[i] == '\n')
            return true;
    return false;
}

static int check_name(struct str name, struct err *err)
{
    if (secret_name_is_valid(name))
        return 0;
    return err_set(err, ERR_INVALID_ARGUMENT,
                   "a secret's name must begin with a letter or _, followed by letters, digits, _, . and -, at most "
                   "%d characters in all",
                   SECRET_NAME_MAX);
}

int vault_set(struct vault *v, struct str name, struct str value, struct err *err)
{
    bool is_there;
    if (check_name(name, err) < 0)
        return -1;
    if (value.n == 0 || value.n > SECRET_VALUE_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "the value of %.*s has %zu bytes, and must have 1 to %d",
                       STR_ARG(name), value.n, SECRET_VALUE_MAX);
    if (breaks_fields(value))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "the value of %.*s contains a line break or a NUL, which no header field can hold",
                       STR_ARG(name));
    (void)vault_find(&v->secrets, name, &is_there);
    if (!is_there && v->secrets.n == SECRETS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are already %d secrets, which is the limit: remove one",
                       SECRETS_MAX);
    return vault_replace(v, name, value, err);
}

int vault_remove(struct vault *v, struct str name, struct err *err)
{
    bool is_there;
    if (check_name(name, err) < 0)
        return -1;
    (void)vault_find(&v->secrets, name, &is_there);
    if (!is_there)
        return err_set(err, ERR_NOT_FOUND, "there is no secret %.*s", STR_ARG(name));
    return vault_replace(v, name, STR_NULL, err);
}

void vault_each(const struct vault *v, bool (*fn)(void *ctx, const char *name, uint64_t set_at_us), void *ctx)
{
    for (size_t i = 0; i < v->secrets.n; i++)
        if (!fn(ctx, v->secrets.items[i].name, v->secrets.items[i].set_at_us))
            return;
}

bool vault_get(const struct vault *v, struct str name, struct str *ret_value)
{
    bool is_there = false;
    size_t at = secret_name_is_valid(name) ? vault_find(&v->secrets, name, &is_there) : 0;
    if (is_there)
        *ret_value = secret_value(&v->secrets, &v->secrets.items[at]);
    return is_there;
}

/* ---- sealed values ---- */

int vault_seal(const struct vault *v, struct str purpose, struct str value, struct buf *to)
{
    AUTO_BUF struct buf box = BUF_INIT(SECRET_VALUE_MAX + BOX_OVERHEAD);
    if (value.n > SECRET_VALUE_MAX)
        return -EINVAL;
    int r = box_seal(vault_store_key(v->store), &(struct box_label){"sealed", 0, purpose}, value, &box);
    return r < 0 ? r : buf_append_base64(to, buf_str(&box));
}

int vault_unseal(const struct vault *v, struct str purpose, struct str sealed, struct buf *to)
{
    AUTO_BUF struct buf box = BUF_INIT(SECRET_VALUE_MAX + BOX_OVERHEAD);
    if (sealed.n > SEALED_MAX || buf_append_unbase64(&box, sealed) < 0 || buf_len(&box) < BOX_OVERHEAD)
        return -EBADMSG;
    size_t n = buf_len(&box) - BOX_OVERHEAD;
    char *room = buf_reserve(to, n ? n : 1);
    if (!room)
        return buf_error(to);
    int r = box_open(vault_store_key(v->store), &(struct box_label){"sealed", 0, purpose}, buf_str(&box), room);
    if (r == 0)
        buf_commit(to, n);
    return r;
}

/* ---- templates ---- */

enum part_kind { PART_TEXT, PART_SECRET, PART_SEALED };

struct part {
    enum part_kind kind;
    struct str text; /* literally; the name; the sealed text */
};

/* Cuts one part off *rest. */
static int next_part(struct str *rest, struct part *ret_part, struct err *err)
{
    static const struct str secret = {"${secret:", 9}, sealed = {"${sealed:", 9};
    ssize_t at = str_find_char(*rest, '$');
    if (at != 0) {
        *ret_part = (struct part){PART_TEXT, str_n(rest->p, at < 0 ? rest->n : (size_t)at)};
        *rest = str_sub(*rest, ret_part->text.n);
        return 0;
    }
    if (str_starts(*rest, STR("$$"))) {
        *ret_part = (struct part){PART_TEXT, str_n(rest->p, 1)};
        *rest = str_sub(*rest, 2);
        return 0;
    }
    ssize_t end = str_find_char(*rest, '}');
    bool is_sealed = str_starts(*rest, sealed);
    if (end < 0 || (!is_sealed && !str_starts(*rest, secret)))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a $ in the value must begin ${secret:NAME} or ${sealed:...}; write $$ for the character "
                       "itself");
    *ret_part = (struct part){is_sealed ? PART_SEALED : PART_SECRET, str_n(rest->p + secret.n, (size_t)end - secret.n)};
    *rest = str_sub(*rest, (size_t)end + 1);
    return 0;
}

/* How long it will be, at most. */
static int measure(const struct vault *v, const struct part *part, size_t *ret_n, struct err *err)
{
    struct str value = part->text;
    if (part->kind == PART_SECRET && !vault_get(v, part->text, &value)) {
        if (check_name(part->text, err) < 0)
            return -1;
        return err_set(err, ERR_NOT_FOUND, "there is no secret %.*s: set it with 'cove secret set %.*s'",
                       STR_ARG(part->text), STR_ARG(part->text));
    }
    *ret_n = part->kind == PART_SEALED ? value.n / 4 * 3 + 3 : value.n;
    return 0;
}

static int vault_put(const struct vault *v, struct str purpose, const struct part *part, struct buf *to,
                     struct err *err)
{
    struct str value = part->text;
    if (part->kind == PART_SEALED) {
        size_t from = buf_len(to);
        int r = vault_unseal(v, purpose, part->text, to);
        if (r == -EBADMSG)
            return err_set(err, ERR_FAILED_PRECONDITION,
                           "a sealed value was sealed for something else, or by another vault: set it again");
        if (r < 0)
            return err_errno(err, r, "unseal a value");
        value = str_n(buf_data(to) + from, buf_len(to) - from);
    } else {
        if (part->kind == PART_SECRET)
            (void)vault_get(v, part->text, &value);
        if (buf_append_str(to, value) < 0)
            return err_errno(err, buf_error(to), "expand a value");
    }
    if (breaks_fields(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "the value of a header field can't contain a line break or a NUL");
    return 0;
}

int vault_expand(const struct vault *v, struct str purpose, struct str text, struct buf *to, struct err *err)
{
    struct part part = {PART_TEXT, STR_NULL};
    struct str rest = text;
    size_t n = 0, all = 1, from = buf_len(to);
    int r = 0;
    while (rest.n > 0) {
        if (next_part(&rest, &part, err) < 0 || measure(v, &part, &n, err) < 0)
            return -1;
        all += n; /* each is bounded by the text or by SECRET_VALUE_MAX */
    }
    /* At once, so that nothing that grows leaves a copy behind. */
    if (!buf_reserve(to, all))
        return err_errno(err, buf_error(to), "expand a value");
    for (rest = text; r == 0 && rest.n > 0;) {
        r = next_part(&rest, &part, err);
        r = r < 0 ? r : vault_put(v, purpose, &part, to, err);
    }
    if (r < 0) {
        mem_wipe(buf_data(to) + from, buf_len(to) - from);
        to->end = to->start + from;
        return -1;
    }
    return 0;
}
