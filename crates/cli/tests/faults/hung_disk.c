/* Lets each deletion of a file whose path begins with HANG_BELOW wait while there is a file
 * HANG_IF-unlink, and each look at one while there is HANG_IF-statx. The same name with -waits shows
 * that a call waits. */
#include "faults.h"

/* Declared under names of their own: the headers forbid a missing path, with which callers find out
 * whether there is a call. */
int unlink_of(const char *path) __asm__("unlink");
int unlink_at(int directory, const char *path, int flags) __asm__("unlinkat");
int look_at(int directory, const char *path, int flags, unsigned int mask, void *about)
    __asm__("statx");

static void may_hang(const char *path, const char *call) {
    const char *below = getenv("HANG_BELOW"), *name = getenv("HANG_IF");
    if (!path || !below || !name || strncmp(path, below, strlen(below)) != 0) return;
    char condition[4096], seen[4200];
    snprintf(condition, sizeof condition, "%s-%s", name, call);
    if (access(condition, F_OK) != 0) return;
    snprintf(seen, sizeof seen, "%s-waits", condition);
    int file = open(seen, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    while (access(condition, F_OK) == 0) wait_millis(20);
}

int unlink_of(const char *path) {
    REAL_AS(unlink_of, "unlink");
    may_hang(path, "unlink");
    return real(path);
}

int unlink_at(int directory, const char *path, int flags) {
    REAL_AS(unlink_at, "unlinkat");
    may_hang(path, "unlink");
    return real(directory, path, flags);
}

int look_at(int directory, const char *path, int flags, unsigned int mask, void *about) {
    REAL_AS(look_at, "statx");
    may_hang(path, "statx");
    return real(directory, path, flags, mask, about);
}
