/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > CONFIG_FILE_MAX)
        return 0;
    AUTO(config_free) struct config *c = NULL;
    struct err err = {0};
    if (config_parse("f", str_n(data, size), &c, &err) < 0) {
        if (err.code == ERR_OK || err.msg[0] == '\0')
            abort();
        return 0;
    }
    if (c->n_listen == 0 || c->state_dir[0] != '/' || c->run_dir[0] != '/' || c->max_timeout_ms < c->default_timeout_ms)
        abort();
    (void)config_check_listen(c, true, &err);
    return 0;
}
