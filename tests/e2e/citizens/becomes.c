/* Becomes another program. */
#include <unistd.h>

int main(int argc, char **argv) {
    execv(argv[argc - 1], argv + 1);
    return 1;
}
