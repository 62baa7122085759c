#include <ontempo.h>

int main() { return ontempo_abi() == ONTEMPO_ABI ? 0 : 1; }
