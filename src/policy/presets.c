/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list. A host is in it when the programs of that maker can't do their work without it: no telemetry, no updates,
 * no whole clouds. Whoever can push to a host can also send data there: @github is such a one.
 */
#include "policy/presets.h"

const struct preset presets[] = {
    {"@anthropic",
     "models of Anthropic, and logging in",
     {"api.anthropic.com", "claude.ai", "platform.claude.com"},
     {443}},
    {"@openai", "models of OpenAI, and logging in", {"api.openai.com", "auth.openai.com", "chatgpt.com"}, {443}},
    {"@google",
     "Gemini, and logging in",
     {"generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com",
      "accounts.google.com"},
     {443}},
    {"@npm", "packages of npm and yarn", {"registry.npmjs.org", "registry.yarnpkg.com"}, {443}},
    {"@pypi", "packages of Python", {"pypi.org", "files.pythonhosted.org"}, {443}},
    {"@debian", "packages of Debian", {"deb.debian.org", "security.debian.org"}, {80, 443}},
    {"@github",
     "GitHub, to read and to write",
     {"github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
      "objects.githubusercontent.com", "release-assets.githubusercontent.com"},
     {443}},
    {"@crates", "packages of Rust", {"index.crates.io", "static.crates.io", "crates.io"}, {443}},
    {"@go", "modules of Go", {"proxy.golang.org", "sum.golang.org"}, {443}},
};
const size_t presets_n = ARRAY_SIZE(presets);

const struct preset *preset_find(struct str name)
{
    for (size_t i = 0; i < presets_n; i++)
        if (str_eqc(name, presets[i].name))
            return &presets[i];
    return NULL;
}
