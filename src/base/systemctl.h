/* SPDX-License-Identifier: Apache-2.0 */
/* The text of dist/systemctl, which the base template and every image of a registry get: their first process is no
 * systemd. */
#pragma once

extern const char script_systemctl[];
