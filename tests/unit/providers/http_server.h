/* SPDX-License-Identifier: Apache-2.0 */
/* Starts http_server.py for a program of tests: start_server and stop_server are its group's set-up and end. */
#ifndef GP_TESTS_HTTP_SERVER_H
#define GP_TESTS_HTTP_SERVER_H

#include "base/fs.h"
#include "base/str.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuprov-http-XXXXXX", ca[64], plain[64], tls[64];
static pid_t server;
static int server_in = -1;

static inline int start_server(void **state) {
    (void)state;
    int in[2], out[2];
    char line[64] = "";
    if (mkdtemp(folder) == NULL || pipe(in) != 0 || pipe(out) != 0) return -1;
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    server = fork();
    if (server == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        const char *python = access(".venv/bin/python", X_OK) == 0 ? ".venv/bin/python" : "python3";
        execlp(python, python, "tests/unit/providers/http_server.py", folder, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server_in = in[1];
    fcntl(server_in, F_SETFD, FD_CLOEXEC);
    for (size_t n = 0; n + 1 < sizeof line && read(out[0], line + n, 1) == 1 && line[n] != '\n';) n++;
    close(out[0]);
    char *second = strchr(line, ' ');
    if (second == NULL) {
        fprintf(stderr, "the test server did not start: install tests/requirements.txt\n");
        return -1;
    }
    *second++ = '\0';
    snprintf(plain, sizeof plain, "http://127.0.0.1:%s", line);
    snprintf(tls, sizeof tls, "https://127.0.0.1:%s", str_trim(second));
    return 0;
}

static inline int stop_server(void **state) {
    (void)state;
    close(server_in);
    waitpid(server, NULL, 0);
    return fs_remove_tree(folder, NULL);
}

#endif
