/* SPDX-License-Identifier: Apache-2.0 */
#include "base/systemctl.h"

/* cppcheck-suppress internalAstError */
const char systemctl_script[] =
#include "base/systemctl.inc"
    ;
