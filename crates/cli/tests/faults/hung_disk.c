/* Lets each deletion of a file and each look at one whose path begins with HANG_BELOW wait while
 * there is a file HANG_IF. The files HANG_IF.unlink and HANG_IF.statx show that a call waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void may_hang(const char *path, const char *call) {
    const char *below = getenv("HANG_BELOW"), *condition = getenv("HANG_IF");
    if (!below || !condition || strncmp(path, below, strlen(below)) != 0) return;
    if (access(condition, F_OK) != 0) return;
    char seen[4096];
    snprintf(seen, sizeof seen, "%s.%s", condition, call);
    int file = open(seen, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    while (access(condition, F_OK) == 0) usleep(20000);
}

int unlink(const char *path) {
    static int (*next)(const char *);
    if (!next) next = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    may_hang(path, "unlink");
    return next(path);
}

int unlinkat(int directory, const char *path, int flags) {
    static int (*next)(int, const char *, int);
    if (!next) next = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
    may_hang(path, "unlink");
    return next(directory, path, flags);
}

int statx(int directory, const char *path, int flags, unsigned int mask, struct statx *about) {
    static int (*next)(int, const char *, int, unsigned int, struct statx *);
    if (!next) {
        next = (int (*)(int, const char *, int, unsigned int, struct statx *))dlsym(RTLD_NEXT,
                                                                                    "statx");
    }
    may_hang(path, "statx");
    return next(directory, path, flags, mask, about);
}
