/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates and sealed texts, as they come in policies: an expansion holds nothing that ends a header field, one that
 * fails leaves nothing behind, and nothing but what this vault sealed is ever opened.
 */
#include "egress/vault/vault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUTPUT_MAX = 256 * 1024 };

static char dir[] = "/tmp/cove-fuzz-XXXXXX";
static struct vault *vault;

static void clean_up(void)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    vault_close(vault);
    (void)unlinkat(fd, "vault.key", 0);
    (void)unlinkat(fd, "vault.json", 0);
    (void)close(fd);
    (void)rmdir(dir);
}

static void begin(void)
{
    struct err err;
    if (!mkdtemp(dir) || atexit(clean_up) != 0)
        abort();
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (vault_open(fd, &vault, &err) < 0 || vault_set(vault, STR("A"), STR("sk-value"), &err) < 0)
        abort();
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    struct str text = str_n(data, size);
    AUTO_BUF struct buf out = BUF_INIT(OUTPUT_MAX), plain = BUF_INIT(OUTPUT_MAX);
    if (!vault)
        begin();
    buf_append_cstr(&out, "before");
    bool is_good = vault_expand(vault, STR("p"), text, &out, &err) == 0;
    if (!str_starts(buf_str(&out), STR("before")) || (!is_good && buf_len(&out) != 6) ||
        (is_good && str_find_char(text, '$') < 0 && !str_eq(str_sub(buf_str(&out), 6), text)))
        abort();
    for (size_t i = 0; i < buf_len(&out); i++)
        if (buf_data(&out)[i] == '\r' || buf_data(&out)[i] == '\n' || buf_data(&out)[i] == '\0')
            abort();
    if (!is_good && (!err.msg[0] || err.code == ERR_OK))
        abort();
    if (vault_unseal(vault, STR("p"), text, &plain) != -EBADMSG || buf_len(&plain) != 0)
        abort();
    return 0;
}
