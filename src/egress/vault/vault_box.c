/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/vault/vault_box.h"
#include "base/id.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/mman.h>

enum { BOX_VERSION = 1, SALT = 16, NONCE = 12, TAG = 16, LABEL_MAX = 512, PLAIN_MAX = 1 << 20 };

static_assert(BOX_OVERHEAD == 1 + SALT + NONCE + TAG, "a box");

static int derive(const uint8_t *key, const uint8_t *salt, uint8_t ret_key[static BOX_KEY_BYTES])
{
    static const char purpose[] = "cove box 1";
    uint8_t text[sizeof(purpose) - 1 + SALT];
    unsigned n = 0;
    memcpy(text, purpose, sizeof(purpose) - 1);
    memcpy(text + sizeof(purpose) - 1, salt, SALT);
    if (!HMAC(EVP_sha256(), key, BOX_KEY_BYTES, text, sizeof(text), ret_key, &n) || n != BOX_KEY_BYTES)
        return -ENOMEM;
    return 0;
}

/* kind, NUL, number (little-endian), name: no two labels give the same bytes. */
static int encode(const struct box_label *label, uint8_t ret_bytes[static LABEL_MAX], int *ret_n)
{
    size_t kind = strlen(label->kind) + 1;
    if (label->name.n > LABEL_MAX - 8 - kind)
        return -ENAMETOOLONG;
    memcpy(ret_bytes, label->kind, kind);
    for (size_t i = 0; i < 8; i++)
        ret_bytes[kind + i] = (uint8_t)(label->number >> (8 * i));
    if (label->name.n)
        memcpy(ret_bytes + kind + 8, label->name.p, label->name.n);
    *ret_n = (int)(kind + 8 + label->name.n);
    return 0;
}

/* A context with the box's key, its nonce and the label in it; NULL: out of memory. */
static EVP_CIPHER_CTX *vault_box_begin(const uint8_t *key, const uint8_t *box, const uint8_t *label, int n_label,
                                       bool seals)
{
    uint8_t own[BOX_KEY_BYTES];
    int n = 0;
    if (derive(key, box + 1, own) < 0)
        return NULL;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool is_ready = c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, own, box + 1 + SALT, seals) == 1 &&
                    EVP_CipherUpdate(c, NULL, &n, label, n_label) == 1;
    mem_wipe(own, sizeof(own));
    if (is_ready)
        return c;
    EVP_CIPHER_CTX_free(c);
    return NULL;
}

int box_seal(const uint8_t key[static BOX_KEY_BYTES], const struct box_label *label, struct str plain, struct buf *to)
{
    uint8_t bytes[LABEL_MAX];
    int n_label = 0, n = 0, r = encode(label, bytes, &n_label);
    if (r < 0)
        return r;
    if (plain.n > PLAIN_MAX)
        return -ENOBUFS;
    uint8_t *box = (uint8_t *)buf_reserve(to, plain.n + BOX_OVERHEAD);
    if (!box)
        return buf_error(to);
    box[0] = BOX_VERSION;
    id_random_bytes(box + 1, SALT + NONCE);
    uint8_t *out = box + 1 + SALT + NONCE;
    EVP_CIPHER_CTX *c = vault_box_begin(key, box, bytes, n_label, true);
    bool is_done = c && (plain.n == 0 || EVP_CipherUpdate(c, out, &n, (const uint8_t *)plain.p, (int)plain.n) == 1) &&
                   EVP_CipherFinal_ex(c, out + plain.n, &n) == 1 &&
                   EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, out + plain.n) == 1;
    EVP_CIPHER_CTX_free(c);
    if (!is_done)
        return -ENOMEM;
    buf_commit(to, plain.n + BOX_OVERHEAD);
    return 0;
}

int box_open(const uint8_t key[static BOX_KEY_BYTES], const struct box_label *label, struct str box, char *to)
{
    uint8_t bytes[LABEL_MAX], tag[TAG];
    int n_label = 0, n = 0, r = encode(label, bytes, &n_label);
    if (r < 0)
        return r;
    if (box.n < BOX_OVERHEAD || box.n > PLAIN_MAX + BOX_OVERHEAD || box.p[0] != BOX_VERSION)
        return -EBADMSG;
    const uint8_t *p = (const uint8_t *)box.p;
    size_t plain = box.n - BOX_OVERHEAD;
    memcpy(tag, p + box.n - TAG, TAG);
    EVP_CIPHER_CTX *c = vault_box_begin(key, p, bytes, n_label, false);
    if (!c)
        return -ENOMEM;
    uint8_t end[TAG];
    bool is_good = (plain == 0 || EVP_CipherUpdate(c, (uint8_t *)to, &n, p + 1 + SALT + NONCE, (int)plain) == 1) &&
                   EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1 && EVP_CipherFinal_ex(c, end, &n) == 1;
    EVP_CIPHER_CTX_free(c);
    if (!is_good && plain)
        mem_wipe(to, plain); /* GCM deciphers before it knows */
    return is_good ? 0 : -EBADMSG;
}

int locked_new(size_t n, struct locked *ret_memory)
{
    if (n == 0) {
        *ret_memory = LOCKED_NONE;
        return 0;
    }
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -errno;
    if (madvise(p, n, MADV_DONTDUMP) < 0 || madvise(p, n, MADV_DONTFORK) < 0 || mlock(p, n) < 0) {
        int r = -errno;
        (void)munmap(p, n);
        return r;
    }
    *ret_memory = (struct locked){p, n};
    return 0;
}

void locked_free(struct locked *memory)
{
    if (memory->p) {
        mem_wipe(memory->p, memory->n);
        (void)munmap(memory->p, memory->n);
    }
    *memory = LOCKED_NONE;
}
