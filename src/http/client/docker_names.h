/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `cove docker` and Docker's API (api/docker) have in common. A container is a sandbox with labels: the image,
 * perhaps a name, the command as people read it, "1"
 * if it goes with its command, where and as whom commands run. Its own command's tag is DOCKER_TAG. An image is the
 * template of docker_template()'s name.
 */
#pragma once

#define DOCKER_IMAGE "docker.image"
#define DOCKER_NAME "docker.name"
#define DOCKER_COMMAND "docker.command"
#define DOCKER_RM "docker.rm"
#define DOCKER_CWD "docker.cwd"
#define DOCKER_USER "docker.user"

#define DOCKER_TAG "docker"
#define DOCKER_ENGINE "25.0.0" /* programs ask whether it is new enough */

/* Without "docker.io/library/" and ":latest"; everything but letters, digits, - and _ is a -. Free with mem_free(). */
char *docker_template(const char *image);
