/* Lets no guard of a task be started, as without room for processes, while there is a file
 * FAIL_IF. */
#include "faults.h"

#include <spawn.h>

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const words[],
                 char *const variables[]) {
    REAL(posix_spawnp);
    const char *condition = getenv("FAIL_IF");
    if (condition && access(condition, F_OK) == 0) {
        for (char *const *word = words; *word; word++) {
            if (strcmp(*word, "guard") == 0) {
                return EAGAIN;
            }
        }
    }
    return real(pid, file, actions, attributes, words, variables);
}
