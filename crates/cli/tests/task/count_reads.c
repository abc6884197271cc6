/* Appends to the file COUNT_TO a line for each open for reading of a file whose path contains
 * COUNT_BELOW: its path. */
#include "faults.h"

static int before_open(const char *path, int flags) {
    const char *below = getenv("COUNT_BELOW"), *log = getenv("COUNT_TO");
    char line[4096];
    if (!below || !log || !strstr(path, below) || (flags & O_ACCMODE) != O_RDONLY) return 0;
    int to = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int length = snprintf(line, sizeof line, "%s\n", path);
    if (to >= 0) {
        if (write(to, line, (size_t)length) < 0) abort();
        close(to);
    }
    return 0;
}

ON_OPEN64(before_open)
