/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

void fault_open(void)
{
}

void fault_point(const char *name UNUSED)
{
}

int fault_error(const char *name UNUSED)
{
    return 0;
}

char *fault_environment(void)
{
    return NULL;
}
