/* SPDX-License-Identifier: Apache-2.0 */
/* What a virtual machine's monitor says to orders: of every line something is made that is text, and ends. */
#include "tier/vm/qmp.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qmp_answer a = qmp_judge(str_n(data, size));
    if (a.kind > QMP_EVENT || !memchr(a.text, 0, sizeof(a.text)) || (a.kind == QMP_BAD && a.text[0]))
        abort();
    return 0;
}
