package io.sanderling.client;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Holds an error of the native half and makes its exception. */
final class Failure {
    private static final Recovery[] RECOVERIES = Recovery.values();

    final String name;
    final String text;
    final Recovery recovery;
    final long retryAfterMillis;
    final String path;
    final long object;
    final List<Range> lost;

    private Failure(String name, String text, Recovery recovery, Decoder more) {
        this.name = name;
        this.text = text;
        this.recovery = recovery;
        this.retryAfterMillis = more == null ? -1 : more.number();
        String path = more == null ? "" : more.text();
        this.path = path.isEmpty() ? null : path;
        this.object = more == null ? 0 : more.number();
        int count = more == null ? 0 : more.count();
        List<Range> lost = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            lost.add(new Range(more.number(), more.number()));
        }
        this.lost = Collections.unmodifiableList(lost);
    }

    static Failure fix(String name, String text) {
        return new Failure(name, text, Recovery.FIX, null);
    }

    /** Reads the fields of an error. */
    static IOException of(Decoder decoder) {
        String name = decoder.text();
        String text = decoder.text();
        return new Failure(name, text, RECOVERIES[decoder.small()], decoder).exception();
    }

    /** Makes the exception of an error; called by the native half. */
    static Throwable thrown(byte[] encoded) {
        return of(new Decoder(encoded));
    }

    /** Returns the exception of the error's name, by the table of docs/ERRORS.md. */
    private SanderlingException exception() {
        switch (name) {
            case "NotFound":
            case "ObjectGone":
                return new NotFoundException(this);
            case "Exists":
                return new AlreadyExistsException(this);
            case "Changed":
                return new ChangedException(this);
            case "NotADirectory":
                return new NotADirectoryException(this);
            case "IsADirectory":
                return new IsADirectoryException(this);
            case "NotEmpty":
                return new NotEmptyException(this);
            case "BadPath":
            case "BadAddress":
            case "BadRequest":
            case "WrongKind":
            case "IntoItself":
            case "CrossesJob":
            case "UnknownStorageClass":
            case "OutOfRange":
            case "TooLarge":
            case "DeadlinePassed":
            case "UnknownJob":
                return new BadRequestException(this);
            default:
                return exceptionOfState();
        }
    }

    private SanderlingException exceptionOfState() {
        switch (name) {
            case "Full":
            case "ReserveKept":
            case "NodeFull":
            case "QuotaPassed":
            case "JobLimitPassed":
                return new FullException(this);
            case "SecondWriter":
                return new SecondWriterException(this);
            case "LeaseEnded":
            case "Sealed":
                return new WriterLostException(this);
            case "DataUnavailable":
                return new DataUnavailableException(this);
            case "Unauthenticated":
            case "Forbidden":
            case "Credentials":
                return new AccessDeniedException(this);
            case "UnknownNode":
                return new UnknownNodeException(this);
            case "TimedOut":
                return new TimedOutException(this);
            case "Unreachable":
                return new UnreachableException(this);
            case "Closed":
            case "WriterClosed":
                return new ClosedException(this);
            default:
                return new SanderlingException(this);
        }
    }
}
