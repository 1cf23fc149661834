import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/**
 * Runs named operations against the bus and prints a line of JSON for each.
 *
 * <p>Where the bus is comes from the environment: BUSWAY_CONNECTION_STRING, BUSWAY_CA_FILE and BUSWAY_MODE, which is
 * `loopback` (the emulator's switch is in the string), `tls` or `websocket`. Of the last two the string names no port, as when
 * the usual ones are served; BUSWAY_ADDRESS is where it listens in fact. Entities are named with BUSWAY_PREFIX.
 */
final class Trial<B extends AutoCloseable> {
    interface Body<B> {
        void run(B bench) throws Exception;
    }

    interface Attempt {
        void run() throws Exception;
    }

    static final String CONNECTION_STRING = System.getenv("BUSWAY_CONNECTION_STRING");
    static final String MODE = System.getenv("BUSWAY_MODE");
    static final String ADDRESS = System.getenv("BUSWAY_ADDRESS");
    /** An entity that is there, and the only one: so it is while a conversation is recorded. */
    static final String GIVEN = System.getenv("BUSWAY_ENTITY");
    private static final long PATIENCE_S = 45;

    private final Map<String, Body<B>> operations = new LinkedHashMap<>();

    void operation(String name, Body<B> body) {
        operations.put(name, body);
    }

    /** Those that are named on the command line, or all. */
    void main(String[] names, Function<String, B> open) throws Exception {
        List<String> chosen = Arrays.asList(names);
        trust();
        for (Map.Entry<String, Body<B>> each : operations.entrySet()) {
            if (!chosen.isEmpty() && !chosen.contains(each.getKey())) {
                continue;
            }
            long began = System.nanoTime();
            String found = attempt(each.getKey(), each.getValue(), open);
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf(
                java.util.Locale.ROOT, "{\"operation\": %s, \"passed\": %s, \"found\": %s, \"seconds\": %.3f}%n",
                quoted(each.getKey()), found.isEmpty(), quoted(found), seconds);
            System.out.flush();
        }
        System.exit(0); // threads of clients that could not be closed do not matter
    }

    private String attempt(String name, Body<B> body, Function<String, B> open) throws InterruptedException {
        FutureTask<Void> task = new FutureTask<>(() -> {
            try (B bench = open.apply(GIVEN != null ? GIVEN : System.getenv("BUSWAY_PREFIX") + name)) {
                body.run(bench);
            }
            return null;
        });
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.start();
        try {
            task.get(PATIENCE_S, TimeUnit.SECONDS);
            return "";
        } catch (ExecutionException failed) {
            failed.getCause().printStackTrace();
            return String.valueOf(failed.getCause());
        } catch (TimeoutException late) {
            for (StackTraceElement place : thread.getStackTrace()) {
                System.err.println(name + " is at " + place);
            }
            return "it did not end";
        }
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\').append(each);
            } else if (each < 0x20) {
                out.append(String.format("\\u%04x", (int) each));
            } else {
                out.append(each);
            }
        }
        return out.append('"').toString();
    }

    /** The same as a trust store made by keytool and named with -Djavax.net.ssl.trustStore. */
    static void trust() throws Exception {
        Path path = Files.createTempFile("trust", ".p12");
        path.toFile().deleteOnExit();
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (FileInputStream in = new FileInputStream(System.getenv("BUSWAY_CA_FILE"))) {
            Certificate authority = CertificateFactory.getInstance("X.509").generateCertificate(in);
            store.setCertificateEntry("busway", authority);
        }
        try (FileOutputStream out = new FileOutputStream(path.toFile())) {
            store.store(out, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", path.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
    }

    static void equal(String what, Object found, Object wanted) {
        if (!Objects.deepEquals(found, wanted)) {
            throw new AssertionError(what + " is " + found + ", not " + wanted);
        }
    }

    static void holds(String what, boolean itIs) {
        if (!itIs) {
            throw new AssertionError("not so: " + what);
        }
    }

    /** The attempt fails, and says so. */
    static Throwable fails(String words, Attempt attempt) {
        Throwable problem;
        try {
            attempt.run();
        } catch (Throwable thrown) {
            problem = thrown;
            holds("'" + words + "' in: " + problem, String.valueOf(problem).contains(words));
            return problem;
        }
        throw new AssertionError("nothing failed, but should with: " + words);
    }

    /** Waits for something that happens elsewhere. */
    static void until(String what, java.util.function.BooleanSupplier itIs) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!itIs.getAsBoolean()) {
            holds(what + ", in time", System.nanoTime() < end);
            Thread.sleep(20);
        }
    }

    static String value(String name) {
        for (String part : CONNECTION_STRING.split(";")) {
            if (part.startsWith(name + "=")) {
                return part.substring(name.length() + 1);
            }
        }
        return "";
    }

    static String stranger() {
        String emulator = value("UseDevelopmentEmulator").isEmpty() ? "" : ";UseDevelopmentEmulator=true";
        return "Endpoint=" + value("Endpoint") + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong" + emulator;
    }
}
