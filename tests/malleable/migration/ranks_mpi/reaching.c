/* Says what the library says of a port of this machine when it may wait until then: PORT SECONDS. */
#include SOURCE

int main(int argc, char **argv)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = reached(&where, now() + atof(argv[argc - 1]));
    puts(fd >= 0 ? "reached" : strerror(errno));
    return 0;
}
