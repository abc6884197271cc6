package io.sanderling.client;

/** Numbers the calls that take fields and return fields; the native half has the same numbers. */
final class Operation {
    static final int STAT = 1;
    static final int EXISTS = 2;
    static final int LIST = 3;
    static final int LIST_WITH_ATTRIBUTES = 4;
    static final int MAKE_DIRECTORY = 5;
    static final int RENAME = 6;
    static final int DELETE = 7;
    static final int USAGE = 8;
    static final int NODES = 9;
    static final int SET_TTL = 10;
    static final int SET_ATTRIBUTES = 11;
    static final int CONCAT = 12;
    static final int PLACES = 13;
    static final int TOKEN = 14;
    static final int METRICS = 15;
    static final int PLACES_OF_ALL = 16;
    static final int JOB_ACCOUNT = 17;
    static final int MAKE_DURABLE = 18;
    static final int DURABILITY = 19;
    static final int WAIT_DURABLE = 20;

    private Operation() {}
}
