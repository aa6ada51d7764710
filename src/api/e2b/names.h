/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's names that its users meet outside of its API: the programs' main files hand them to those who need them. */
#pragma once

#define E2B_KEY_PREFIX "e2b_"               /* of API keys: some SDKs refuse others */
#define E2B_MARKER "/run/e2b/.E2B_SANDBOX"  /* in the base template: a file that says "true" */
#define E2B_ATTRIBUTES "user.e2b."          /* the prefix of the extended attributes that are a file's metadata */
#define E2B_BASE_IMAGE "e2bdev/base:latest" /* the image that the base template stands for */
