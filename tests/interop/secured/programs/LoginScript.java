import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;

/** Logs in once for each file of properties on stdin, and prints a line: "in", or the error. */
public class LoginScript {
    public static void main(String[] arguments) throws Exception {
        BufferedReader files = new BufferedReader(new InputStreamReader(System.in));
        for (String file = files.readLine(); file != null; file = files.readLine()) {
            Properties properties = new Properties();
            try (FileReader reader = new FileReader(file)) {
                properties.load(reader);
            }
            System.out.println(logIn(properties));
        }
    }

    private static String logIn(Properties properties) {
        try (Admin admin = Admin.create(properties)) {
            admin.describeCluster().clusterId().get(20, TimeUnit.SECONDS);
            return "in";
        } catch (Exception failure) {
            Throwable cause = failure;
            while (cause.getCause() != null
                    && (cause instanceof java.util.concurrent.ExecutionException
                        || cause.getClass() == org.apache.kafka.common.KafkaException.class)) {
                cause = cause.getCause();
            }
            String deepest = cause.getMessage();
            if (cause instanceof org.apache.kafka.common.errors.SslAuthenticationException
                    && cause.getCause() != null) {
                deepest += ": " + cause.getCause().getMessage();
            }
            return (cause.getClass().getSimpleName() + ": " + deepest).replace('\n', ' ');
        }
    }
}
